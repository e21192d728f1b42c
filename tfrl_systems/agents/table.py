"""The list of agents: for each, its module in `tfrl_systems/agents/` and the loop it learns in.

Each of them learns in any system. A system may have an agent of its own in place of one of these
(`System.own_agents`).

To add an agent, write a module with `Config` and `make_agent(config, time_step_spec, action_spec)`,
and add one line here. An agent's `make_agent` decides from the specs whether it can learn in a
system; if it cannot, the error says what specs it expected.
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
      module: name of the module with the agent's `Config`, `make_agent` and `COLLECTS`.
      loop: name of the module with the `Config` of the loop that the agent learns in.
      may_change: settings of the loop that a resumed run may change.
    """

    module: str
    loop: str = "tfrl_systems.training.loop"
    may_change: tuple[str, ...] = ("checkpoint_every",)

    @property
    def collects(self) -> str:
        """What the agent learns from: a name in `training.online.WAYS`."""
        return str(importlib.import_module(self.module).COLLECTS)

    @property
    def presets(self) -> Mapping[str, Mapping[str, Any]]:
        """The values of several settings, by the preset's name; the module may have `PRESETS`."""
        return vars(importlib.import_module(self.module)).get("PRESETS", {})

    def expanded(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Replace the setting `preset`, if it is given, by what it stands for.

        Raises:
          UsageError: the agent has no such preset.
        """
        if "preset" not in settings:
            return dict(settings)
        name = settings["preset"]
        if name not in self.presets:
            names = ", ".join(self.presets) or "none for this agent"
            raise UsageError(f"--set preset: expected one of {names}; found {name!r}")
        fields = {field: value for field, value in settings.items() if field != "preset"}
        return {**self.presets[name], **fields}

    def make_config(self, **settings: Any) -> Any:
        """Return the agent's settings; those that are not given have the agent's defaults."""
        return importlib.import_module(self.module).Config(**settings)

    def make_loop_config(self, **settings: Any) -> Any:
        """Return the loop's settings; those that are not given have the loop's defaults."""
        return importlib.import_module(self.loop).Config(**settings)

    def make_agent(self, config: Any, time_step_spec: Any, action_spec: Any) -> Any:
        """Make the agent, untrained.

        Raises:
          UserError: a setting is out of its range, or the agent cannot learn with these specs.
        """
        module = importlib.import_module(self.module)
        return module.make_agent(config, time_step_spec, action_spec)


AGENTS: Mapping[str, Agent] = {
    name: Agent(f"tfrl_systems.agents.{name}")
    for name in ("ppo", "reinforce", "es", "world_model", "bc_max", "surrogate")
}


def find_agent(name: str) -> Agent:
    """Return the agent of that name.

    Raises:
      UsageError: there is no agent of that name.
    """
    if name not in AGENTS:
        raise UsageError(f"agent: expected one of {', '.join(AGENTS)}; found {name!r}")
    return AGENTS[name]
