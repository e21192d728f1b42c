"""Episodes that are saved to be played again: elsewhere, by others, on the other stack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tf_agents.trajectories import time_step as ts

from environments.wrappers import Flat


class Recording:
    """An episode as it is played, to be saved."""

    def __init__(
        self, system: str, settings: Mapping[str, Any], environment: Flat, time_step: ts.TimeStep
    ) -> None:
        """Begin with the first time step of an episode."""

    def add(self, action: Any, time_step: ts.TimeStep) -> None:
        """Add an action and the time step that it led to."""

    def fork(self, environment: Flat) -> Recording:
        """Return a copy that goes on in another environment."""
        return self

    def trajectory(self, author: str = "") -> Any:
        """Return the episode so far."""
