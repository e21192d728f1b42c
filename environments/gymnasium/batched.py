"""Episodes side by side as Gymnasium's vector environment, for a system that has them itself."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import utils
from tf_agents.trajectories import time_step as ts

import environments
from environments.gymnasium import spaces
from environments.wrappers import Flat

_LAST = int(ts.StepType.LAST)


class BatchedEnvironment(gymnasium.vector.VectorEnv):
    """A batched environment of a system; all episodes begin and end together.

    After the end, the next `step` begins the next episodes and ignores its actions, as Gymnasium's
    "next step" autoreset does. When episodes end, `infos` has what the system's `get_info` tells,
    each an array with a row for each episode.

    Args:
      num_envs: number of episodes side by side.
      system: name of the system.
      **settings: arguments of `environments.make` for this system.
    """

    metadata = {"autoreset_mode": getattr(gymnasium.vector, "AutoresetMode", None)}
    if metadata["autoreset_mode"] is not None:
        metadata["autoreset_mode"] = metadata["autoreset_mode"].NEXT_STEP

    def __init__(self, num_envs: int, system: str, **settings: Any) -> None:
        self.num_envs = num_envs
        self._environment = environments.make(system, batch_size=num_envs, **settings)
        flat = Flat(self._environment)
        self.single_observation_space = spaces.observation_space(flat)
        self.single_action_space = spaces.action_space(flat)
        self.observation_space = utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = utils.batch_space(self.single_action_space, num_envs)
        self._is_seeded = False
        self._masks: dict[str, np.ndarray] = {}
        self._all, self._none = np.ones(num_envs, np.bool_), np.zeros(num_envs, np.bool_)
        for mask in (self._all, self._none):
            mask.setflags(write=False)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start the next episodes; a seed restarts all that is random."""
        if seed is not None or not self._is_seeded:
            super().reset(seed=seed)
            drawn = int(self.np_random.integers(2**31)) if seed is None else seed
            self._environment.seed(drawn)
            self._is_seeded = True
        return self._environment.reset().observation, {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take an action in each episode."""
        step_type, reward, discount, observation = self._environment.step(actions)
        if step_type[0] != _LAST:
            return observation, reward, self._none, self._none, {}
        info = self._environment.get_info()
        if not self._masks:
            self._masks = {f"_{name}": self._all for name in info}
        info = {**info, **self._masks}
        if discount[0] == 0:
            return observation, reward, self._all, self._none, info
        return observation, reward, self._none, self._all, info

    def close_extras(self, **_: Any) -> None:
        """Close the system's environment."""
        self._environment.close()
