"""Policies that learned from measured rewards, each about a second of real time."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import time

from environments.tensor_graphs.environment import Model
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.rewards import end_to_end
from tfrl_systems.systems.tensor_graphs.policy import Chance, GraphPolicy
from tools.benchmarks import shared
from tools.benchmarks.world_models.rewriting import CHANCE, Case, environment_of, learned


@dataclasses.dataclass(frozen=True)
class Measured:
    """A task: learn, then measure what an episode of the likeliest actions comes to.

    Attributes:
      case: what to learn; its settings have `measure_every`. Chance plays an episode.
      output: directory of the records.
      seconds: of that measurement.
    """

    case: Case
    output: pathlib.Path
    seconds: float = 20.0

    def __call__(self) -> shared.Record:
        """Do it, unless there is a record of it; return the record."""
        path = self.output / f"measured-{self.case.name}.json"
        return shared.kept(path, dataclasses.asdict(self.case), self._made)

    def _made(self) -> shared.Record:
        case, began_s = self.case, time.monotonic()
        policy, steps = GraphPolicy(Chance(), seed=case.seed), 0
        if case.agent != CHANCE:
            run = learned(case, self.output / "runs" / "measured")
            policy, steps = GraphPolicy.load(run.policy), run.result["environment_steps"]
        learned_s = time.monotonic() - began_s
        environment = environment_of(case)
        number = int(case.agent == CHANCE)
        collections.deque(policy.play(environment, number), maxlen=0)
        assert environment.state is not None
        measure = end_to_end(backend(), self.seconds)
        return {
            "label": case.label,
            "seed": case.seed,
            "environment_steps": steps,
            "seconds": learned_s,
            "ratio": measure(Model.load(case.model).graph, environment.state.graph),
        }
