"""Records episodes as they are played, to be saved as trajectories."""

from __future__ import annotations

import copy
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from tf_agents.trajectories import time_step as ts

import environments
from environments.errors import UserError
from environments.trajectories import Action, Trajectory, digest_of, is_number, versions
from environments.wrappers import Flat


class Recorder(Flat):
    """A flat environment, made by its name, whose last episode can be saved.

        recorder = Recorder("tensor_graphs", models=["bert-tiny"], objective="analytic")
        …  # play an episode: by hand, or with a driver of TF-Agents
        recorder.save_trajectory("mine.json", author="me")

    The settings are those of `environments.make` for the system of that name.

    Raises:
      UserError: the settings cannot be used, or ask for episodes side by side.
    """

    def __init__(self, system: str, **settings: Any) -> None:
        super().__init__(environments.make(system, **settings))
        if self.batched:
            raise UserError(
                f"batch_size: expected one episode at a time to record, found {self.batch_size}; "
                "leave it out"
            )
        self._system, self._settings = system, settings
        self._is_recorded = all(hasattr(self.environment, name) for name in ("views", "reset_at"))
        # What `views` tells of the start of the episode that is recorded; None before the first.
        self._context: Mapping[str, str] | None = None
        self._actions: list[Action] = []
        self._rewards: list[float] = []
        self._observations: list[str] = []
        self._info: dict[str, Any] | None = None

    def save_trajectory(self, path: str | os.PathLike[str], author: str = "") -> None:
        """Write the episode so far to a file, which `tfrl replay` plays again.

        Args:
          path: a file, by custom NAME.json.
          author: whose decisions these are, for the table of `tfrl replay`.

        Raises:
          UserError: no episode has begun, its context has no name, a setting is no JSON value, or
            the file cannot be written.
        """
        if not self._is_recorded:
            raise UserError(
                f"{self._system}: expected an environment that can begin at a named context, found "
                "no reset_at or no views; add them, and its episodes can be saved"
            )
        if self._context is None:
            raise UserError("save_trajectory: expected an episode, found none; call reset first")
        if not self._context["name"]:
            raise UserError(
                "trajectory: expected an episode that begins at a context with a name, found one "
                "that begins elsewhere; begin it by reset_at, or set random_steps=0"
            )
        trajectory = Trajectory(
            self._system,
            {name: _json_value(name, value) for name, value in self._settings.items()},
            self._context["name"],
            self._context["digest"],
            tuple(self._actions),
            tuple(self._rewards),
            tuple(self._observations),
            is_finished=self._info is not None,
            info=self._info or {},
            author=author,
            versions=versions(),
        )
        trajectory.save(pathlib.Path(path))

    def reset_at(self, context: Any) -> ts.TimeStep:
        """Start an episode at a context, if the environment can."""
        return self._begin(super().reset_at(context))

    def fork(self) -> Recorder:
        """Return a copy in the middle of the same episode, if the environment can be forked."""
        twin = copy.copy(self)
        twin.environment = self._method("fork")()
        twin._actions, twin._rewards = list(self._actions), list(self._rewards)
        twin._observations = list(self._observations)
        return twin

    def _reset(self) -> ts.TimeStep:
        return self._begin(super()._reset())

    def _step(self, action: Any) -> ts.TimeStep:
        time_step = super()._step(action)
        # After an episode's end the environment begins the next one by itself.
        if time_step.is_first():
            return self._begin(time_step)
        if self._context is not None:
            self._add(action, time_step)
        return time_step

    def _begin(self, time_step: ts.TimeStep) -> ts.TimeStep:
        if self._is_recorded:
            self._context = self.environment.views()["context"]
            self._actions, self._rewards, self._info = [], [], None
            self._observations = [digest_of(time_step.observation)]
        return time_step

    def _add(self, action: Any, time_step: ts.TimeStep) -> None:
        if self.num_actions:
            self._actions.append(int(action))
        else:
            self._actions.append(tuple(np.asarray(action, np.float32).tolist()))
        self._rewards.append(float(time_step.reward))
        self._observations.append(digest_of(time_step.observation))
        if time_step.is_last():
            self._info = dict(self.get_info())


def _json_value(name: str, value: Any) -> Any:
    """Return what JSON writes for a setting, or for a part of it.

    Raises:
      UserError: JSON has nothing for it.
    """
    if value is None or isinstance(value, bool | int | str) or is_number(value):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        return [_json_value(name, part) for part in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _json_value(name, part) for key, part in value.items()}
    raise UserError(
        f"setting {name}: expected text, numbers or a path, which a file can hold, found "
        f"{type(value).__name__}; make the environment from names to save its episodes"
    )
