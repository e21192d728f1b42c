"""The order in which `tensor_graph_tables.py` makes its measurements."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from tfrl_systems.reporting import Reporter
from tools.benchmarks.shared import Do, Record, Task, followed
from tools.benchmarks.tensor_graphs import pictures, report, writing
from tools.benchmarks.tensor_graphs.cases import CHANCE, SEARCHES, Plan, Run, halves, usual_reward
from tools.benchmarks.tensor_graphs.measurements import (
    Benchmark,
    play,
    play_by_chance,
    search,
    train,
)
from tools.benchmarks.tensor_graphs.report import Found
from tools.benchmarks.tensor_graphs.times import ORIGINAL, measure, memory
from tools.benchmarks.tensor_graphs.walks import walk


@dataclasses.dataclass
class Experiments:
    """The measurements, made in order; those that have a record are not repeated.

    Training runs may run side by side. Everything else runs alone, because other load on the
    machine changes how long a model takes, and what a search finds in its seconds.

    Attributes:
      benchmark: directory and settings.
      models: names of the models.
      agents: names of the agents; the first one also learns with other rewards, and for several
        models.
      reporter: receives the progress.
      found: the records so far.
    """

    benchmark: Benchmark
    models: Sequence[str]
    agents: Sequence[str]
    reporter: Reporter
    found: Found = dataclasses.field(default_factory=Found)

    @functools.cached_property
    def usual(self) -> str:
        """Symbol of the reward of the settings; see `usual_reward`."""
        planned = self.benchmark.plan(Run(self.agents[0], (self.models[0],), 0))
        return usual_reward(planned.settings["environment"].reward)

    def search(self) -> None:
        """Make the measurements that need no learning: searches and random walks."""
        for model in self.models:
            searches = [functools.partial(search, self.benchmark, model, one) for one in SEARCHES]
            self.found.searches += self._alone(searches, f"{model}: searches")
            walks = [functools.partial(walk, self.benchmark, model)]
            self.found.walks += self._alone(walks, f"{model}: random walks")

    def learn(self, seed: int, do: Do, has_others: bool = True) -> None:
        """Make the training runs of a seed, and let their policies play.

        Args:
          seed: seed of the training runs.
          do: does several tasks at the same time.
          has_others: whether to include runs for several models and with other rewards.
        """
        plan = Plan.of(self.models, self.agents, seed, self.usual)
        if not has_others:
            plan = dataclasses.replace(plan, rewards=(), general=None)
        tasks = [functools.partial(train, self.benchmark, run) for run in plan.runs]
        label = f"seed {seed}: "
        self.found.runs += followed(do(tasks), len(tasks), self.reporter, f"{label}trainings")
        plays = [task for model in self.models for task in self._plays(plan, model)]
        self.found.plays += self._alone(plays, f"{label}policies")

    def play_by_chance(self) -> None:
        """Play at random, with as many steps as each policy of the first agent on its own model."""
        learned = [
            one for model in self.models for one in self.found.own_plays(model, self.agents[0])
        ]
        tasks = [
            functools.partial(play_by_chance, self.benchmark, one["model"], one) for one in learned
        ]
        self.found.searches += self._alone(tasks, CHANCE)

    def _plays(self, plan: Plan, model: str) -> list[Task]:
        own = [run for run in (*plan.own, *plan.rewards) if run.models == (model,)]
        plays: list[Task] = [functools.partial(play, self.benchmark, model, run) for run in own]
        if plan.general is not None and model in halves(self.models)[1]:
            plays += [
                functools.partial(
                    play, self.benchmark, model, plan.general, in_disguise=in_disguise
                )
                for in_disguise in (False, True)
            ]
        return plays

    def measure(self) -> None:
        """Measure times and memory; each agent is represented by its policy of the median cost."""
        times, memories = [], []
        for model in self.models:
            best = [
                one
                for one in self.found.searches
                if one["model"] == model and one["method"] in SEARCHES
            ]
            best += [report.median_of(self.found.own_plays(model, one)) for one in self.agents]
            times.append(functools.partial(measure, self.benchmark, model))
            times += [functools.partial(measure, self.benchmark, model, one) for one in best]
            memories += [
                functools.partial(memory, self.benchmark, model, method)
                for method in (ORIGINAL, *SEARCHES)
            ]
            memories += [
                functools.partial(memory, self.benchmark, model, agent, Run(agent, (model,), 0))
                for agent in self.agents
            ]
        self.found.times += self._alone(times, "models end to end")
        self.found.memory += self._alone(memories, "memory")

    def _alone(self, tasks: Sequence[Task], label: str) -> list[Record]:
        return list(followed((task() for task in tasks), len(tasks), self.reporter, label))

    def write(self, about: Record) -> None:
        """Write tables and pictures of what has been measured so far."""
        table = report.summarise(self.found, self.models, self.agents, self.usual, about)
        write(table, self.benchmark.output)


def write(table: dict[str, Any], output: pathlib.Path) -> None:
    """Write table.json, table.md and the pictures."""
    output.mkdir(parents=True, exist_ok=True)
    text = json.dumps(table, indent=1, allow_nan=False)
    (output / "table.json").write_text(text + "\n", encoding="utf-8")
    (output / "table.md").write_text(writing.to_markdown(table), encoding="utf-8")
    pictures.draw(table, output)
