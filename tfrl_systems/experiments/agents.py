"""The agents that there are: a file of `tfrl_systems/agents/` each, and the loop it learns in.

A new agent is its file, with `Config` and `make_agent(config, time_step_spec, action_spec)`, and
one line here. Which systems it fits is read from their specs: `make_agent` refuses others, and says
what it expected.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

from environments.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Agent:
    """One way to learn.

    Attributes:
      module: has its `Config` and `make_agent`.
      loop: has the `Config` of the loop that it learns in.
      is_online: whether it learns from what its own policy collects, iteration by iteration; else
        from whole trajectories of other policies, which a system has to offer.
      may_change: settings of the loop with which a run may be resumed though they are others.
    """

    module: str
    loop: str
    is_online: bool
    may_change: tuple[str, ...]

    def make_config(self, **settings: Any) -> Any:
        """The agent's settings, its own defaults where none are given."""
        return importlib.import_module(self.module).Config(**settings)

    def make_loop_config(self, **settings: Any) -> Any:
        """The loop's settings, likewise."""
        return importlib.import_module(self.loop).Config(**settings)

    def make_agent(self, config: Any, time_step_spec: Any, action_spec: Any) -> Any:
        """The agent, untrained.

        Raises:
          UserError: a setting is out of its range, or the specs are of a kind that it cannot learn.
        """
        module = importlib.import_module(self.module)
        return module.make_agent(config, time_step_spec, action_spec)


_AGENTS, _TRAINING = "tfrl_systems.agents", "tfrl_systems.training"

AGENTS: Mapping[str, Agent] = {
    "ppo": Agent(f"{_AGENTS}.ppo", f"{_TRAINING}.online", True, ("checkpoint_every",)),
    "reinforce": Agent(f"{_AGENTS}.reinforce", f"{_TRAINING}.online", True, ("checkpoint_every",)),
    "bc_max": Agent(f"{_AGENTS}.bc_max", f"{_TRAINING}.bc_max", False, ("iterations",)),
}


def find_agent(name: str) -> Agent:
    """The agent of that name.

    Raises:
      UsageError: there is none.
    """
    if name not in AGENTS:
        raise UsageError(f"agent: expected one of {', '.join(AGENTS)}; found {name!r}")
    return AGENTS[name]
