"""How far a world model's predictions and reality are apart.

The model is judged on real episodes that it has not been trained on yet. One step ahead it is given
what really happened before. Several steps ahead it is given the state at which an episode begins
and the actions that were taken; latents are its own.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl_systems.networks.array_function import ArrayFunction
from tfrl_systems.networks.inputs import NUM_PLACES
from tfrl_systems.world_models import mdn_rnn
from tfrl_systems.world_models.fitting import Sequences
from tfrl_systems.world_models.mdn_rnn import WorldModel

MAX_STEPS = 20


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Figures of a model on some real episodes.

    Attributes:
      reward_r2: share of the variance of rewards that predictions one step ahead explain.
      mask_f1: F1 of what is predicted to be allowed next; 1 if everything always is.
      done_accuracy: share of steps whose end, or going on, is predicted.
      error_by_step: root mean square error of a latent's coordinates 1, 2, … 20 steps ahead.
      reward_error_by_step: the same of rewards.
      real_return: mean return of the episodes.
      predicted_return: mean of the returns that the model expects of the same actions.
      invalid_share: share of actions, drawn among those that the model believes to be allowed
        while it dreams on, which the real environment would have refused.
    """

    reward_r2: float
    mask_f1: float
    done_accuracy: float
    error_by_step: list[float]
    reward_error_by_step: list[float]
    real_return: float
    predicted_return: float
    invalid_share: float

    def by_steps_ahead(self) -> dict[str, dict[str, float]]:
        """Return the errors of latents and rewards by the number of steps, from "1"."""
        errors = zip(self.error_by_step, self.reward_error_by_step, strict=False)
        return {
            str(steps): {"latents": latent, "rewards": reward}
            for steps, (latent, reward) in enumerate(errors, start=1)
        }


class Judge:
    """Judges a model."""

    def __init__(self, model: WorldModel) -> None:
        self._model = model
        self._one_step_fn = ArrayFunction(self._one_step, [1, 1, 2])
        self._ahead_fn = ArrayFunction(self._ahead, [1, 1, 2])

    def judge(self, episodes: Sequences, generator: np.random.Generator) -> Judgement:
        """Judge the model on real episodes; the generator draws the actions of `invalid_share`."""
        steps, place = episodes.steps, episodes.place
        is_real, has_next = episodes.is_real > 0, episodes.has_next > 0
        after = np.minimum(place + 1, len(steps.reward) - 1)
        rewards, ends, allowed = self._one_step_fn(steps.observation, steps.action, place)
        real_rewards = steps.reward[place]
        latents, ahead, dreamed, dreamed_rewards = self._ahead_fn(
            steps.observation, steps.action, place
        )
        really_allowed = steps.permitted[after] > 0
        errors = np.sum((ahead - latents[after]) ** 2, axis=-1) / latents.shape[-1]
        reward_errors = (dreamed_rewards - real_rewards) ** 2
        return Judgement(
            reward_r2=explained(rewards[is_real], real_rewards[is_real]),
            mask_f1=f1(allowed[has_next], really_allowed[has_next]),
            done_accuracy=float(np.mean((ends > 0.5)[is_real] == steps.is_end[place][is_real])),
            error_by_step=_roots(errors, has_next),
            reward_error_by_step=_roots(reward_errors, is_real),
            real_return=float(np.sum(real_rewards * is_real) / len(place)),
            predicted_return=float(np.sum(dreamed_rewards * is_real) / len(place)),
            invalid_share=self._invalid(dreamed, steps.permitted[after], has_next, generator),
        )

    def _one_step(self, observation: Any, action: Any, place: Any) -> tuple:
        """Return rewards [B, T], chances of an end, and what is allowed next, [B, T, P]."""
        model = self._model
        latents = tf.gather(model.latents(observation), place)
        _, predicted = model.unroll(latents, tf.gather(action, place))
        ends = tf.reduce_mean(tf.sigmoid(predicted.end_logits), axis=0)
        allowed = tf.cast(model.permitted(predicted), tf.bool)
        return tuple(
            _by_time(prediction, tf.shape(place))
            for prediction in (tf.reduce_mean(model.rewards(predicted), axis=0), ends, allowed)
        )

    def _ahead(self, observation: Any, action: Any, place: Any) -> tuple:
        """Return the latents [N, L]; dreamed ones after each step, permits, and rewards."""
        model = self._model
        latents = model.latents(observation)
        now = tf.gather(latents, place[:, 0])
        actions = tf.gather(action, place)
        num_rows = tf.shape(place)[0]
        size = model.allowed.size

        def dream_step(carried: Any, acted: tf.Tensor) -> Any:
            memories, predicted = model.step(carried[0], acted, carried[1])
            rewards = tf.reduce_mean(model.rewards(predicted), axis=0)
            dreamed = tf.cast(model.permitted(predicted), tf.int32)
            return mdn_rnn.mean_latents(predicted), memories, dreamed, rewards

        nothing = (tf.zeros([num_rows, size], tf.int32), tf.zeros([num_rows]))
        ahead, _, dreamed, rewards = tf.scan(
            dream_step, mdn_rnn.swapped(actions), (now, model.empty(num_rows), *nothing)
        )
        return latents, *map(mdn_rnn.swapped, (ahead, dreamed, rewards))

    def _invalid(
        self,
        dreamed: np.ndarray,
        permitted: np.ndarray,
        has_next: np.ndarray,
        generator: np.random.Generator,
    ) -> float:
        """Return the share of refused actions among those drawn evenly from what was dreamed."""
        guesses = dreamed[has_next].astype(np.float64)
        real = permitted[has_next]
        totals = guesses.sum(axis=1, keepdims=True)
        is_any = totals[:, 0] > 0
        if not guesses.shape[1] or not is_any.any():
            return 0.0
        guesses, real, totals = guesses[is_any], real[is_any], totals[is_any]
        drawn = generator.random((len(guesses), 1)) * totals
        chosen = np.sum(np.cumsum(guesses, axis=1) <= drawn, axis=1)
        rows = np.arange(len(guesses))
        if self._model.allowed.name != NUM_PLACES:
            return float(np.mean(~real[rows, chosen]))
        places = np.floor(generator.random(len(guesses)) * guesses[rows, chosen])
        return float(np.mean(places >= real[rows, chosen]))


def _by_time(array: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    return tf.reshape(array, tf.concat([shape, tf.shape(array)[1:]], axis=0))


def explained(predicted: np.ndarray, real: np.ndarray) -> float:
    """Return R²; 1 if there is nothing to explain and nothing is predicted wrongly."""
    unexplained = float(np.sum((predicted - real) ** 2))
    total = float(np.sum((real - real.mean()) ** 2))
    if total == 0:
        return 1.0 if unexplained < 1e-6 else 0.0
    return 1 - unexplained / total


def f1(predicted: np.ndarray, real: np.ndarray) -> float:
    """Return the F1 of predicted truth values; 1 if nothing is true or predicted."""
    hits = int(np.sum(predicted & real))
    wrong = int(np.sum(predicted != real))
    return 2 * hits / (2 * hits + wrong) if hits or wrong else 1.0


def _roots(errors: np.ndarray, counts: np.ndarray) -> list[float]:
    """Return root mean squares of errors [B, T] by step, over the rows that count."""
    return [
        float(np.sqrt(errors[counts[:, t], t].mean()))
        for t in range(min(MAX_STEPS, errors.shape[1]))
        if counts[:, t].any()
    ]
