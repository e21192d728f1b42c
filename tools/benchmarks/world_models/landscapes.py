"""Landscapes that are learned from few evaluations of a function."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from typing import Any

from tfrl_systems import experiments
from tfrl_systems.experiments import Reporter
from tools.benchmarks import shared

FUNCTION = "shifted_ackley"
EPISODES_PER_CHUNK = 40
"""4 chunks of 40 episodes, each of 3 evaluations: 480 in an iteration."""


@dataclasses.dataclass(frozen=True)
class Few:
    """A task: learn the function from few evaluations.

    Attributes:
      agent: the agent.
      seed: seed of everything random.
      iterations: iterations of 480 evaluations.
      settings: settings of the agent, by name.
      output: directory of the records.
    """

    agent: str
    seed: int
    iterations: int
    settings: tuple[tuple[str, Any], ...]
    output: pathlib.Path

    def __call__(self) -> shared.Record:
        """Do it, unless there is a record of it; return the record."""
        name = f"landscape-{self.agent}-{self.iterations}-seed-{self.seed}"
        decided = {**dataclasses.asdict(self), "output": ""}
        return shared.kept(self.output / f"{name}.json", decided, lambda: self._made(name))

    def _made(self, name: str) -> shared.Record:
        began_s = time.monotonic()
        run = experiments.train(
            "learn_to_optimize",
            agent=self.agent,
            workdir=self.output / "runs" / name,
            seed=self.seed,
            iterations=self.iterations,
            settings={
                "episodes_per_chunk": EPISODES_PER_CHUNK,
                "evaluate_every": self.iterations,
                **dict(self.settings),
            },
            reporter=Reporter(),
            function=FUNCTION,
        )
        truth = run.result["truth_evaluations"]
        return {
            "agent": self.agent,
            "seed": self.seed,
            "evaluations": run.result["function_evaluations"] - truth,
            "truth_evaluations": truth,
            "seconds": time.monotonic() - began_s,
            "mse": run.result["evaluation"]["last"]["mse"],
            "world_model": run.result.get("world_model"),
        }
