"""Collecting with Stable-Baselines3. Only this module imports it; the extra "bench" installs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common import vec_env

from environments.learn_to_optimize.functions import Objective


class GymnasiumEnvironment(gymnasium.Env):
    """`LearnToOptimizeEnvironment` as a user of Gymnasium would write it, without any wrapper.

    Args:
      objective: the function to minimise.
      episode_length: number of steps in an episode.
      seed: seed of the start points.
    """

    def __init__(self, objective: Objective, episode_length: int, seed: int) -> None:
        self._objective = objective
        self._episode_length = episode_length
        self._generator = np.random.default_rng(seed)
        box = gymnasium.spaces.Box
        self.observation_space = box(-1, 1, (objective.dimensions,), np.float32)
        self.action_space = box(-1, 1, (objective.num_tuned,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode."""
        self._state = self._generator.uniform(-1, 1, self._objective.dimensions).astype(np.float32)
        self._value = float(self._objective(self._state[np.newaxis])[0])
        self._num_steps = 0
        return self._state, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move to another x; Stable-Baselines3 has clipped the action to its bounds."""
        self._state = self._state.copy()
        self._state[: len(action)] = action
        before, self._value = self._value, float(self._objective(self._state[np.newaxis])[0])
        self._num_steps += 1
        is_over = self._num_steps == self._episode_length
        return self._state, before - self._value, is_over, False, {}


def make_collect(objective: Objective, length: int, num_episodes: int) -> Callable[[], object]:
    """Return a call of PPO's `collect_rollouts`, with one environment for each episode."""
    torch.set_num_threads(1)

    def make_environment(seed: int) -> Callable[[], gymnasium.Env]:
        return lambda: GymnasiumEnvironment(objective, length, seed)

    environments = vec_env.DummyVecEnv([make_environment(seed) for seed in range(num_episodes)])
    model = stable_baselines3.PPO(
        "MlpPolicy",
        environments,
        n_steps=length,
        batch_size=num_episodes * length,
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}},
        device="cpu",
    )
    # This method is not public, but `learn` calls it before it collects.
    _, callback = model._setup_learn(total_timesteps=sys.maxsize)
    return lambda: model.collect_rollouts(
        environments, callback, model.rollout_buffer, n_rollout_steps=length
    )
