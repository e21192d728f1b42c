"""Trains a controller in dreams: PPO with a world model in place of the environment."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tensorflow as tf
import tree
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from tfrl_systems.agents.ppo import PPOAgent
from tfrl_systems.networks.array_function import ArrayFunction
from tfrl_systems.policies.controller_policy import distribution_parameters
from tfrl_systems.world_models import dream as dreams
from tfrl_systems.world_models.fitting import Replay, Sequences
from tfrl_systems.world_models.mdn_rnn import WorldModel


class Sleeper(tf.Module):
    """Trains a controller, a PPO agent, in dreams; `settings` (`world_model.Config`) say how."""

    def __init__(self, model: WorldModel, controller: PPOAgent, settings: Any) -> None:
        super().__init__(name="sleeper")
        self._model, self._controller, self._settings = model, controller, settings
        self._dream = dreams.Dream(model, settings.temperature, settings.disagreement)
        self._remember = dreams.Remembering(model)
        self._imagine_fn = ArrayFunction(self._imagine)
        self._learn_fn = ArrayFunction(self._learn)
        self._dream_steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="dream_steps")
        self._dream_s = tf.Variable(0.0, trainable=False, name="dream_s")
        self._dreamed_return = tf.Variable(0.0, trainable=False, name="dreamed_return")

    def train(
        self,
        replay: Replay,
        recent: tuple[Sequences, Any] | None,
        generator: np.random.Generator,
    ) -> tuple[float, float]:
        """Train the controller in dreams that begin at real states.

        Args:
          replay: the real steps so far.
          recent: real episodes that the controller played last, to mix in, and parameters of the
            distributions that their actions were drawn from, [N, …]; None for none.
          generator: decides where dreams begin, and everything in them.

        Returns:
          The mean return of the dreams, and PPO's loss, both of the last update.
        """
        settings, began_s = self._settings, time.perf_counter()
        num_steps = settings.dream_steps or int(replay.lengths.max())
        starts = self.starts(replay)
        real = self._real(starts, recent, num_steps)
        num_real = 0 if real is None else round(settings.real_share * settings.num_dreams)
        num_dreams, outcomes = settings.num_dreams - num_real, []
        for _ in range(settings.dream_updates):
            start = starts.drawn(num_dreams, not settings.dream_from_states, generator)
            real_rows = None
            if real is not None:
                rows = generator.integers(len(real.reward), size=num_real)
                real_rows = tree.map_structure(lambda array, rows=rows: array[rows], real)
            seed = generator.integers(1 << 31, size=2).astype(np.int32)
            dreamed, loss = self._learn_fn(start, real_rows, np.int32(num_steps), seed)
            outcomes.append((float(dreamed), float(loss)))
        self._dream_s.assign_add(np.float32(time.perf_counter() - began_s))
        if outcomes:
            self._dreamed_return.assign(np.float32(outcomes[-1][0]))
        return outcomes[-1] if outcomes else (0.0, 0.0)

    def dream(
        self, starts: dreams.Starts, num_dreams: int, num_steps: int, generator: np.random.Generator
    ) -> trajectory.Trajectory:
        """Dream as in training, and return the experience [B, T]."""
        start = starts.drawn(num_dreams, not self._settings.dream_from_states, generator)
        seed = generator.integers(1 << 31, size=2).astype(np.int32)
        experience, _ = self._imagine_fn(start, None, np.int32(num_steps), seed)
        return experience

    def starts(self, replay: Replay) -> dreams.Starts:
        """Return the states of all real steps, for dreams to begin at."""
        return self._remember(replay.every())

    def report(self) -> dict[str, Any]:
        """Return the figures of dreams; the time of PPO's updates is included."""
        steps, seconds = int(self._dream_steps.numpy()), float(self._dream_s.numpy())
        return {
            "dream_steps": steps,
            "dream_steps_per_second": steps / seconds if seconds else 0.0,
            "dreamed_return": float(self._dreamed_return.numpy()),
        }

    def _real(
        self, starts: dreams.Starts, recent: tuple[Sequences, Any] | None, num_steps: int
    ) -> dreams.Imagined | None:
        """Return recent episodes in segments like dreams, which end the states of `starts`."""
        if recent is None or not self._settings.real_share:
            return None
        episodes, info = recent
        count = len(episodes.steps.reward)
        newest = tree.map_structure(lambda array: array[-count:], starts)
        return dreams.real_segments(self._dream, newest, episodes, info, num_steps)

    def _learn(
        self,
        start: dreams.DreamState,
        real: dreams.Imagined | None,
        num_steps: tf.Tensor,
        seed: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Train the controller on new dreams; return their mean return, and PPO's loss."""
        steps, dreamed = self._imagine(start, real, num_steps, seed)
        learned = self._controller.train(steps)
        self._dream_steps.assign_add(tf.cast(tf.shape(start.latents)[0] * num_steps, tf.int64))
        return dreamed, learned.loss

    def _imagine(
        self,
        start: dreams.DreamState,
        real: dreams.Imagined | None,
        num_steps: tf.Tensor,
        seed: tf.Tensor,
    ) -> tuple[trajectory.Trajectory, tf.Tensor]:
        """Dream, and return experience [B, T] for PPO, and the mean return of a dream."""

        def act(seen: dict[str, tf.Tensor], seed: tf.Tensor) -> tuple[tf.Tensor, Any]:
            distribution, _ = self._controller.actor_network(seen)
            action = tf.cast(distribution.sample(seed=seed), self._controller.action_spec.dtype)
            return action, distribution_parameters(distribution)

        imagined = dreams.imagine(self._dream, act, start, num_steps, seed)
        alive = tf.cast(imagined.is_alive, tf.float32)
        mean = tf.reduce_mean(tf.reduce_sum(imagined.reward * alive, axis=1))
        if real is not None:
            imagined = tf.nest.map_structure(
                lambda *arrays: tf.concat(arrays, axis=0), imagined, real
            )
        return self.experience(imagined), mean

    def experience(self, imagined: dreams.Imagined) -> trajectory.Trajectory:
        """Return dreams as experience [B, T], padded with boundary steps.

        A dream that is cut off has a future. Its last reward holds the value of what follows, so
        that PPO can take the step for the last one.
        """
        shape = tf.shape(imagined.reward)
        is_last = tf.range(shape[1]) == shape[1] - 1
        values, _ = self._controller.value_network(imagined.final)
        cut_off = tf.cast(is_last & imagined.is_alive & ~imagined.is_end, tf.float32)
        rewards = imagined.reward / self._model.reward_scale
        rewards += self._settings.gamma * cut_off * values[:, tf.newaxis]
        ends = imagined.is_alive & (imagined.is_end | is_last)
        following = tf.where(ends, ts.StepType.LAST, ts.StepType.MID)
        return trajectory.Trajectory(
            tf.where(imagined.is_alive, ts.StepType.MID, ts.StepType.LAST),
            imagined.observation,
            imagined.action,
            {"dist_params": imagined.info},
            tf.where(imagined.is_alive, following, ts.StepType.FIRST),
            tf.where(imagined.is_alive, rewards, 0.0),
            tf.where(ends, 0.0, 1.0),
        )
