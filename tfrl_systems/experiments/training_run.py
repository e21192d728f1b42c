"""What is trained, and how: all that decides the outcome of a training run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfrl_systems.experiments.agents import find_agent
from tfrl_systems.experiments.settings import Settings, as_json


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """All that decides the outcome of a training run.

    Attributes:
      system: name of the system.
      agent: name of the agent.
      problem: what is decided on, the system's `problem_type`.
      settings: "loop", "agent" and what else the system has.
      seed: of everything.
    """

    system: str
    agent: str
    problem: Any
    settings: Settings
    seed: int

    def identity(self, described: Mapping[str, Any]) -> dict[str, Any]:
        """What run.json holds: a run is resumed only with the same.

        Args:
          described: what identifies the problem, JSON values.
        """
        settings = as_json(self.settings)
        for name in find_agent(self.agent).may_change:
            del settings[name]
        names = {"environment": self.system, "agent": self.agent, "seed": self.seed}
        return {**names, **described, **settings}
