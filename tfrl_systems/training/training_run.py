"""The description of a training run: everything that decides its outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfrl_systems.agents.table import Agent
from tfrl_systems.settings import Settings, as_json


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """Everything that decides the outcome of a training run.

    Attributes:
      system: name of the system.
      agent: name of the agent.
      problem: what to decide on; an instance of the system's `problem_type`.
      settings: the groups "loop" and "agent", and any others that the system has.
      seed: seed of everything random.
      how: how the agent learns in this system.
    """

    system: str
    agent: str
    problem: Any
    settings: Settings
    seed: int
    how: Agent

    def identity(self, described: Mapping[str, Any]) -> dict[str, Any]:
        """Return the contents of run.json. A run can be resumed only if they are the same.

        `described` identifies the problem, as JSON values.
        """
        settings = as_json(self.settings)
        for name in self.how.may_change:
            del settings[name]
        names = {"environment": self.system, "agent": self.agent, "seed": self.seed}
        return {**names, **described, **settings}
