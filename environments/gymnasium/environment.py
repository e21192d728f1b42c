"""The systems as environments of Gymnasium: one episode, or several side by side."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import utils
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

import environments
from environments.errors import UserError
from environments.recording import Recorder
from environments.wrappers import Flat, split_mask

_LAST = int(ts.StepType.LAST)


class SystemEnvironment(gymnasium.Env[np.ndarray, Any]):
    """One of the systems, with its actions numbered, or in a box.

    Observation: a vector, as `wrappers.Flat` describes it. Under the key "action_mask", `info` has
      the mask, int8 [m], of a system that masks its actions; and when an episode ends, what the
      system's own `get_info` tells, such as sizes or costs with their units in their names.

    `reset(seed=…)` restarts all that is random; the first `reset` without a seed takes one of
    Gymnasium's own. `reset(options={"context": …})` starts at a context instead of a drawn one: a
    module of the corpus by name, a model, a start point.

    Args:
      system: name of the system.
      render_mode: "ansi": `render` returns the last decision in words.
      **settings: arguments of `environments.make` for this system; `reward` names what is rewarded.

    Raises:
      UserError: the settings cannot be used.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}

    def __init__(self, system: str, render_mode: str | None = None, **settings: Any) -> None:
        if render_mode not in (None, "ansi"):
            raise UserError(f"render_mode: expected 'ansi' or None, found {render_mode!r}")
        self.render_mode = render_mode
        self._environment = Recorder(system, **settings)
        self.observation_space = _observation_space(self._environment)
        self.action_space = _action_space(self._environment)
        self._mask = np.ones(self._environment.num_actions, np.int8)
        self._is_seeded = False

    @property
    def system_environment(self) -> Any:
        """The system's own environment, which has its state, its rules and so on."""
        return self._environment.environment

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode.

        Raises:
          UserError: there is no such option, or no such context.
        """
        super().reset(seed=seed)
        unknown = set(options or ()) - {"context"}
        if unknown:
            raise UserError(f"options: expected 'context', found {', '.join(sorted(unknown))}")
        if seed is None and not self._is_seeded:
            seed = int(self.np_random.integers(2**31))
        if seed is not None:
            self._environment.seed(seed)
            self._is_seeded = True
        context = (options or {}).get("context")
        if context is None:
            time_step = self._environment.reset()
        else:
            time_step = self._environment.reset_at(context)
        return self._seen(time_step), self._info(time_step)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take an action."""
        if not self._environment.has_episode:
            raise gymnasium.error.ResetNeeded("step: expected reset first, found no episode")
        time_step = self._environment.step(action)
        is_last = bool(time_step.is_last())
        is_over = is_last and float(time_step.discount) == 0
        return (
            self._seen(time_step),
            float(time_step.reward),
            is_over,
            is_last and not is_over,
            self._info(time_step),
        )

    def action_masks(self) -> np.ndarray:
        """Return which actions are allowed now, bool [m], as sb3-contrib's MaskablePPO asks."""
        return self._mask.astype(bool)

    def render(self) -> str | None:  # type: ignore[override]
        """Return the last decision in words, or None without a render mode."""
        return self._environment.describe() if self.render_mode else None

    def fork(self) -> SystemEnvironment:
        """Return a copy in the middle of the same episode; it must be closed, too."""
        twin = SystemEnvironment.__new__(SystemEnvironment)
        twin.__dict__.update(self.__dict__)
        twin._environment = self._environment.fork()
        twin._np_random = None  # drawn from only by a first reset, which has been
        return twin

    @property
    def observation(self) -> Mapping[str, Any]:
        """What else can be seen of the episode, by name; each is computed when it is asked for."""
        return self._environment.views()

    def save_trajectory(self, path: pathlib.Path | str, author: str = "") -> None:
        """Write the episode so far to a file; see `Recorder.save_trajectory`."""
        self._environment.save_trajectory(path, author)

    def close(self) -> None:
        """Close the system's environment; may be called again."""
        self._environment.close()

    def _seen(self, time_step: ts.TimeStep) -> np.ndarray:
        if not self._environment.is_masked:
            return time_step.observation
        vector, mask = split_mask(time_step.observation)
        self._mask = mask.astype(np.int8)
        return vector

    def _info(self, time_step: ts.TimeStep) -> dict[str, Any]:
        info = {"action_mask": self._mask} if self._environment.is_masked else {}
        return info | (self._environment.get_info() if time_step.is_last() else {})


class BatchedEnvironment(gymnasium.vector.VectorEnv):
    """A batched environment of a system; all episodes begin and end together.

    After the end, the next `step` begins the next episodes and ignores its actions, as Gymnasium's
    "next step" autoreset does. When episodes end, `infos` has what the system's `get_info` tells,
    each an array with a row for each episode. The settings are those of `environments.make`.
    """

    metadata = {"autoreset_mode": getattr(gymnasium.vector, "AutoresetMode", None)}
    if metadata["autoreset_mode"] is not None:
        metadata["autoreset_mode"] = metadata["autoreset_mode"].NEXT_STEP

    def __init__(self, num_envs: int, system: str, **settings: Any) -> None:
        self.num_envs = num_envs
        self._environment = environments.make(system, batch_size=num_envs, **settings)
        flat = Flat(self._environment)
        self.single_observation_space = _observation_space(flat)
        self.single_action_space = _action_space(flat)
        self.observation_space = utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = utils.batch_space(self.single_action_space, num_envs)
        self._is_seeded = False
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
        info |= {f"_{name}": self._all for name in info}
        if discount[0] == 0:
            return observation, reward, self._all, self._none, info
        return observation, reward, self._none, self._all, info

    def close_extras(self, **_: Any) -> None:
        """Close the system's environment."""
        self._environment.close()


def _observation_space(environment: Flat) -> gymnasium.spaces.Box:
    """Return the space of the vector that the environment shows, without its mask."""
    spec = environment.observation_spec()
    return _box(split_mask(spec)[0] if environment.is_masked else spec)


def _action_space(environment: Flat) -> gymnasium.spaces.Space:
    if environment.num_actions:
        return gymnasium.spaces.Discrete(environment.num_actions)
    return _box(environment.action_spec())


def _box(spec: array_spec.BoundedArraySpec) -> gymnasium.spaces.Box:
    low, high = (np.broadcast_to(bound, spec.shape) for bound in (spec.minimum, spec.maximum))
    return gymnasium.spaces.Box(
        low.astype(spec.dtype), high.astype(spec.dtype), spec.shape, spec.dtype
    )
