"""The real experience of a run, and the training of a world model on it.

One step of training sees a few whole episodes. With w_t = 0 for padding and 1 for real steps,

    loss = Σ_t w_t (mixture + reward + end + permits) / Σ_t w_t        mean over members
    mixture = -log p(z_{t+1}) / L        if t is not the last step of its episode

The mixture's target z_{t+1} is taken as it is: were it trained too, all latents would become one,
which is the easiest to predict. Every other gradient reaches the latents, also that of z_t in the
prediction of step t. Each fit begins anew with the full learning rate, because new experience has
come; it falls by a polynomial of degree 2 (thesis, 4.3.3).
"""

from __future__ import annotations

import pathlib
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from environments import files
from tfrl_systems.networks.adam import Adam
from tfrl_systems.networks.array_function import ArrayFunction
from tfrl_systems.networks.inputs import NUM_PLACES
from tfrl_systems.world_models.mdn_rnn import WorldModel, mixture_log_density

_ARRAYS_NAME = "replay.npz"
_MAX_NORM = 1000.0
# The final learning rate as a share of the first.
_FINAL_SHARE = 0.01


class Steps(NamedTuple):
    """N real steps, one episode after another.

    Attributes:
      observation: what latents are made from, arrays [N, …].
      permitted: what was allowed, [N, P].
      action: [N, …].
      reward: float32 [N].
      is_end: bool [N], whether the environment ended the episode with this step.
    """

    observation: Any
    permitted: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    is_end: np.ndarray


class Sequences(NamedTuple):
    """B episodes of at most T steps, whose steps are rows of arrays [N, …].

    Attributes:
      steps: the N steps.
      place: int32 [B, T], the row of each step; padding repeats the last row.
      is_real: float32 [B, T], 0 for padding.
      has_next: float32 [B, T], 1 if the next step belongs to the same episode.
    """

    steps: Steps
    place: np.ndarray
    is_real: np.ndarray
    has_next: np.ndarray


class Losses(NamedTuple):
    """The parts of the loss, means over real steps."""

    mixture: tf.Tensor
    reward: tf.Tensor
    end: tf.Tensor
    permits: tf.Tensor


class Replay:
    """The real steps of a run, in the order in which they were collected.

    Args:
      model: its latents say what of an observation is kept.
      max_steps: if there are more, the oldest episodes are dropped, but none of those that were
        added last; None for no limit.
    """

    def __init__(self, model: WorldModel, max_steps: int | None = None) -> None:
        self._model, self._max_steps = model, max_steps
        self._parts: list[Steps] = []
        self.lengths = np.zeros(0, np.int64)

    @property
    def num_steps(self) -> int:
        """Return N."""
        return int(self.lengths.sum())

    @property
    def steps(self) -> Steps:
        """Return all steps."""
        if len(self._parts) > 1:
            self._parts = [tree.map_structure(lambda *arrays: np.concatenate(arrays), *self._parts)]
        return self._parts[0]

    def add(self, experience: trajectory.Trajectory) -> Sequences:
        """Add episodes [B, T], padded as by `episodes.split_episodes`; return them."""
        is_taken = experience.step_type != ts.StepType.LAST
        steps = steps_of(self._model, experience)
        lengths = is_taken.sum(axis=1)
        self._parts.append(steps)
        self.lengths = np.append(self.lengths, lengths)
        self._drop_oldest(len(lengths))
        return sequences(steps, lengths, np.arange(len(lengths)))

    def _drop_oldest(self, num_new: int) -> None:
        """Drop the oldest episodes until `max_steps` are left, or the new episodes alone."""
        if self._max_steps is None or self.num_steps <= self._max_steps:
            return
        num_kept = int(np.sum(np.cumsum(self.lengths[::-1]) <= self._max_steps))
        self.lengths = self.lengths[-max(num_kept, num_new) :]
        num_steps = self.num_steps
        self._parts = [tree.map_structure(lambda array: array[-num_steps:].copy(), self.steps)]

    def drawn(self, num_episodes: int, generator: np.random.Generator) -> Sequences:
        """Draw episodes without replacement, all if there are no more."""
        count = min(num_episodes, len(self.lengths))
        rows = generator.choice(len(self.lengths), count, replace=False)
        return sequences(self.steps, self.lengths, rows)

    def every(self) -> Sequences:
        """Return all episodes."""
        return sequences(self.steps, self.lengths, np.arange(len(self.lengths)))

    def save(self, directory: pathlib.Path) -> None:
        """Write all steps into a directory."""
        leaves = tree.flatten(self.steps) if self._parts else []
        named = {f"leaf{number}": leaf for number, leaf in enumerate(leaves)}
        np.savez_compressed(directory / _ARRAYS_NAME, lengths=self.lengths, **named)

    def restore(self, directory: pathlib.Path, like: Steps) -> None:
        """Read what `save` wrote; `like` are steps of the same structure."""
        arrays = files.read_arrays(directory / _ARRAYS_NAME)
        self.lengths = arrays.pop("lengths")
        leaves = [arrays[f"leaf{number}"] for number in range(len(arrays))]
        self._parts = [tree.unflatten_as(like, leaves)] if leaves else []


def steps_of(model: WorldModel, experience: trajectory.Trajectory) -> Steps:
    """Return the steps [N, …] of episodes [B, T] in which an action was taken."""
    is_taken = np.asarray(experience.step_type) != ts.StepType.LAST

    def taken(array: Any) -> np.ndarray:
        return np.asarray(array)[is_taken]

    observation = tree.map_structure(taken, experience.observation)
    allowed = model.allowed.of(observation)
    is_last = taken(experience.next_step_type) == ts.StepType.LAST
    return Steps(
        model.latents.select(observation),
        np.zeros((len(is_last), 0), np.bool_) if allowed is None else np.asarray(allowed),
        taken(experience.action),
        taken(experience.reward).astype(np.float32),
        is_last & (taken(experience.discount) == 0),
    )


def sequences(steps: Steps, lengths: np.ndarray, rows: np.ndarray) -> Sequences:
    """Return the episodes `rows`, int [B], of those with `lengths`, int [E], that steps consist of.

    Steps [N, …] stand one episode after another.
    """
    starts = np.cumsum(lengths) - lengths
    number = np.arange(int(lengths.max()))
    chosen = lengths[rows][:, np.newaxis]
    within = np.minimum(number, chosen - 1)
    is_real = number < chosen
    taken = np.concatenate([np.arange(starts[i], starts[i] + lengths[i]) for i in rows])
    firsts = np.cumsum(lengths[rows]) - lengths[rows]
    return Sequences(
        tree.map_structure(lambda array: array[taken], steps),
        (firsts[:, np.newaxis] + within).astype(np.int32),
        is_real.astype(np.float32),
        (number < chosen - 1).astype(np.float32),
    )


class Fitter(tf.Module):
    """Trains a model; `learning_rate` is that at the start of each fit."""

    def __init__(self, model: WorldModel, learning_rate: float) -> None:
        super().__init__(name="fitter")
        self._model = model
        self._learning_rate = learning_rate
        self.optimizer = Adam(learning_rate, model.trainable_variables, _MAX_NORM)
        # Each draw has other numbers of steps.
        self._update_fn = ArrayFunction(self._update, [1, 2, 2, 2])

    def fit(
        self, replay: Replay, num_updates: int, num_episodes: int, generator: np.random.Generator
    ) -> Losses:
        """Train on the replay; each step of Adam sees `num_episodes` episodes.

        Returns:
          The losses, means over the last quarter of the updates.
        """
        spread = np.std(replay.steps.reward)
        is_known = spread > 0 and np.isfinite(spread)
        self._model.reward_scale.assign(spread if is_known else np.float32(1))
        late = []
        for number in range(num_updates):
            share = max((1 - number / num_updates) ** 2, _FINAL_SHARE)
            rate = np.float32(self._learning_rate * share)
            losses = self._update_fn(*replay.drawn(num_episodes, generator), rate)
            if number >= num_updates * 3 // 4:
                late.append(losses)
        return Losses(*np.mean(np.array(late), axis=0).tolist())

    def _update(
        self, steps: Any, place: Any, is_real: Any, has_next: Any, learning_rate: tf.Tensor
    ) -> Losses:
        episodes = Sequences(steps, place, is_real, has_next)
        self.optimizer.set_learning_rate(learning_rate)
        with tf.GradientTape() as tape:
            losses = self.losses(episodes)
            total = tf.add_n(list(losses))
        variables = self._model.trainable_variables
        gradients = tape.gradient(
            total, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return losses

    def losses(self, episodes: Sequences) -> Losses:
        """Return the parts of the loss on some episodes."""
        model, steps = self._model, episodes.steps
        latents = model.latents(steps.observation)
        actions = tf.gather(steps.action, episodes.place)
        _, predicted = model.unroll(tf.gather(latents, episodes.place), actions)
        place = tf.reshape(episodes.place, [-1])
        is_real, has_next = (
            tf.reshape(weights, [-1]) for weights in (episodes.is_real, episodes.has_next)
        )
        # The next step's row follows, because the steps of an episode stand together.
        after = tf.minimum(place + 1, tf.shape(latents)[0] - 1)
        targets = tf.stop_gradient(tf.gather(latents, after))
        mixture = -mixture_log_density(predicted, targets) / float(model.latents.size)
        ends = tf.cast(tf.gather(steps.is_end, place), tf.float32)
        permits = self._permits_loss(predicted, tf.gather(steps.permitted, after))
        return Losses(
            _mean(mixture, has_next),
            _mean(model.reward_loss(predicted, tf.gather(steps.reward, place)), is_real),
            _mean(_cross_entropy(predicted.end_logits, ends), is_real),
            _mean(permits, has_next),
        )

    def _permits_loss(self, predicted: Any, permitted: tf.Tensor) -> tf.Tensor:
        """Return the losses [K, N] of what is allowed next, [N, P]."""
        is_allowed = tf.cast(tf.cast(permitted, tf.bool), tf.float32)
        losses = _cross_entropy(predicted.allowed_logits, is_allowed)
        if self._model.allowed.name == NUM_PLACES:
            logs = tf.math.log1p(tf.cast(permitted, tf.float32))
            losses += is_allowed * tf.square(predicted.log_places - logs)
        return tf.reduce_sum(losses, axis=-1)


def _cross_entropy(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    return tf.nn.sigmoid_cross_entropy_with_logits(
        tf.broadcast_to(targets, tf.shape(logits)), logits
    )


def _mean(losses: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Return the weighted mean of losses [K, N] with weights [N]."""
    of_members = tf.reduce_mean(losses, axis=0)
    return tf.reduce_sum(of_members * weights) / tf.maximum(tf.reduce_sum(weights), 1.0)
