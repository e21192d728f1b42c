"""The same task in Stable-Baselines3. Only this module imports it; "bench" installs it."""

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
    """`LearnToOptimizeEnvironment` as a user of Gymnasium would write it, without any wrapper."""

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


class VectorEnvironment(vec_env.VecEnv):
    """The same environment for many episodes at once, which all begin and end together."""

    def __init__(self, objective: Objective, episode_length: int, num_episodes: int) -> None:
        self._objective = objective
        self._episode_length = episode_length
        self._generator = np.random.default_rng(0)
        spaces = GymnasiumEnvironment(objective, episode_length, 0)
        self.render_mode = None
        super().__init__(num_episodes, spaces.observation_space, spaces.action_space)

    def reset(self) -> np.ndarray:
        """Start all episodes."""
        shape = self.num_envs, self._objective.dimensions
        self._states = self._generator.uniform(-1, 1, shape).astype(np.float32)
        self._values = self._objective(self._states)
        self._num_steps = 0
        return self._states

    def step_async(self, actions: np.ndarray) -> None:
        """Take the actions, which Stable-Baselines3 has clipped to their bounds."""
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Move all episodes to another x; where they end, the next ones begin."""
        self._states = np.concatenate(
            [self._actions, self._states[:, self._actions.shape[1] :]], axis=1
        )
        before, self._values = self._values, self._objective(self._states)
        rewards = (before - self._values).astype(np.float32)
        self._num_steps += 1
        is_over = self._num_steps == self._episode_length
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if is_over:
            infos = [{"terminal_observation": state} for state in self._states]
            self.reset()
        return self._states, rewards, np.full(self.num_envs, is_over), infos

    def close(self) -> None:
        """There is nothing to close."""

    def get_attr(self, attr_name: str, indices: vec_env.base_vec_env.VecEnvIndices = None) -> Any:
        """Return the attribute for each row."""
        return [getattr(self, attr_name)] * self.num_envs

    def set_attr(
        self, attr_name: str, value: Any, indices: vec_env.base_vec_env.VecEnvIndices = None
    ) -> None:
        """Set the attribute for all rows."""
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """There are no methods of single rows."""
        raise NotImplementedError(method_name)

    def env_is_wrapped(self, *_: Any) -> list[bool]:
        """Return for each row that no wrapper is around it."""
        return [False] * self.num_envs


def make_learn(
    objective: Objective,
    length: int,
    num_episodes: int,
    hidden_size: int,
    num_epochs: int,
    is_vectorised: bool,
) -> Callable[[], None]:
    """Return a call of PPO's `collect_rollouts`, and of `train` if there are epochs.

    `is_vectorised` says whether the episodes are rows of one environment.
    """
    make = VectorEnvironment if is_vectorised else _dummy
    torch.set_num_threads(1)
    hidden_sizes = [hidden_size] * 2
    model = stable_baselines3.PPO(
        "MlpPolicy",
        make(objective, length, num_episodes),
        n_steps=length,
        batch_size=num_episodes * length,
        n_epochs=max(num_epochs, 1),
        policy_kwargs={"net_arch": {"pi": hidden_sizes, "vf": hidden_sizes}},
        device="cpu",
    )
    # This method is not public, but `learn` calls it before it collects.
    _, callback = model._setup_learn(total_timesteps=sys.maxsize)

    def learn() -> None:
        model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
        if num_epochs:
            model.train()

    return learn


def _dummy(objective: Objective, length: int, num_episodes: int) -> vec_env.VecEnv:
    def make_environment(seed: int) -> Callable[[], gymnasium.Env]:
        return lambda: GymnasiumEnvironment(objective, length, seed)

    return vec_env.DummyVecEnv([make_environment(seed) for seed in range(num_episodes)])
