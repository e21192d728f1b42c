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
        self._environment = Flat(environments.make(system, batch_size=num_envs, **settings))
        self.single_observation_space = spaces.observation_space(self._environment)
        self.single_action_space = spaces.action_space(self._environment)
        self.observation_space = utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = utils.batch_space(self.single_action_space, num_envs)
        self._is_seeded = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start the next episodes; a seed restarts all that is random."""
        super().reset(seed=seed)
        if seed is None and not self._is_seeded:
            seed = int(self.np_random.integers(2**31))
        if seed is not None:
            self._environment.seed(seed)
            self._is_seeded = True
        return self._environment.reset().observation, {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take an action in each episode."""
        time_step = self._environment.step(actions)
        is_last = time_step.step_type == ts.StepType.LAST
        is_over = is_last & (time_step.discount == 0)
        info = dict(self._environment.get_info()) if is_last[0] else {}
        info |= {f"_{name}": is_last for name in info}
        return (
            time_step.observation,
            time_step.reward.astype(np.float64),
            is_over,
            is_last & ~is_over,
            info,
        )

    def close_extras(self, **_: Any) -> None:
        """Close the system's environment."""
        self._environment.close()
