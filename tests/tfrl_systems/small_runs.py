"""A short run of an agent on a system: the same for every test that needs one."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from tests.environments.tensor_graphs.small_models import adapter, write
from tfrl_systems import experiments
from tfrl_systems.drivers.collect import Collect

# Six iterations of three chunks: two checkpoints are kept, and one was removed.
ONLINE = {
    "iterations": 6,
    "num_chunks": 3,
    "episodes_per_chunk": 4,
    "evaluate_every": 2,
    "checkpoint_every": 2,
    "hidden_sizes": (8,),
}
DREAMING = {
    "num_members": 1,
    "memory_size": 8,
    "head_size": 8,
    "num_dreams": 16,
    "dream_updates": 3,
    "fit_updates": 4,
    "fit_episodes": 6,
    "random_share": 0.5,
    "real_share": 0.0,
}
GRAPHS = {
    "num_chunks": 2,
    "episodes_per_chunk": 2,
    "graph_width": 8,
    "graph_rounds": 1,
    "max_steps": 8,
    "max_nodes": 64,
    "max_edges": 96,
    "max_actions": 128,
    "evaluate_every": 2,
}
# Enough to find that folding W + A·B saves more than half.
FOLDING = {
    "iterations": 8,
    "episodes_per_chunk": 8,
    "learning_rate": 0.015,
    "final_learning_rate": 0.003,
    "checkpoint_every": 3,
}
# The modules are C, whose calls are in no scope.
INLINING = {
    "iterations": 2,
    "evaluate_every": 1,
    "checkpoint_every": 1,
    "scope": "all",
    "group": 2,
}
SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    **{("learn_to_optimize", agent): ONLINE for agent in ("ppo", "reinforce", "es")},
    ("learn_to_optimize", "bc_max"): {**ONLINE, "updates": 20},
    ("learn_to_optimize", "world_model"): {**ONLINE, **DREAMING},
    ("tensor_graphs", "ppo"): {**GRAPHS, **FOLDING},
    ("inlining", "ppo"): {**ONLINE, **INLINING},
}


@dataclasses.dataclass(frozen=True)
class SmallRun:
    """What to train, and how little of it.

    Attributes:
      system: name of the system.
      agent: name of the agent.
      problem: fields of the system's problem.
    """

    system: str
    agent: str
    problem: Mapping[str, Any]

    def train(self, workdir: pathlib.Path, **more: Any) -> experiments.Run:
        """Trains it, in this process if nothing else is said; settings are added to its own."""
        settings = {**SETTINGS[self.system, self.agent], **more.pop("settings", {})}
        return experiments.train(
            self.system,
            agent=self.agent,
            workdir=workdir,
            settings=settings,
            reporter=experiments.Reporter(),
            **{"collect": Collect(), **self.problem, **more},
        )

    def read(self, workdir: pathlib.Path) -> experiments.Run:
        """Returns a run that was trained."""
        settings = SETTINGS[self.system, self.agent]
        planned = experiments.plan(self.system, agent=self.agent, settings=settings, **self.problem)
        return experiments.Run(planned, workdir, json.loads((workdir / "result.json").read_text()))


def write_models(directory: pathlib.Path) -> None:
    """Makes a directory of the models that are learned on."""
    directory.mkdir()
    write(directory / "adapter.onnx", adapter())


def problems(
    models: pathlib.Path, corpus: pathlib.Path, cache: pathlib.Path
) -> dict[str, dict[str, Any]]:
    """What each system decides on."""
    return {
        "learn_to_optimize": {"function": "shifted_sphere", "sampler": "heterogeneous"},
        "tensor_graphs": {"models": [models / "adapter.onnx"], "objective": "analytic"},
        "inlining": {"corpus": corpus, "cache": cache},
    }
