"""What `tensor_graph_tables.py` measures. Each measurement is a record in a file of its own."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import pathlib
import sys
from typing import Any

from environments.tensor_graphs import rules
from environments.tensor_graphs.search import INTERRUPTED, Budget, Result
from tfrl_systems.cli.settings import parse_settings
from tfrl_systems.cli.tensor_graphs import train as learning
from tfrl_systems.cli.tensor_graphs.policy import Chance, GraphPolicy
from tfrl_systems.cli.tensor_graphs.problem import Problem, model_of
from tfrl_systems.cli.train import settings_on_graphs
from tfrl_systems.training.checkpoints import open_workdir
from tools.benchmarks.shared import Record, kept
from tools.benchmarks.tensor_graphs.cases import CHANCE, Run, slug
from tools.benchmarks.tensor_graphs.disguise import disguised

_SEED_OF_DISGUISE = 1


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """What is the same for all measurements.

    Attributes:
      output: directory.
      rules: a file; None for those that come with the program.
      objective: name of what is to become less.
      dimensions: sizes that models leave open, by name.
      assignments: `field=value`, as for `tfrl train`.
      iterations: for each model of a training; None for those of `tfrl train`.
      seconds: that a search may take, and what a policy does in its place.
      rollouts: episodes that a policy plays; the first one without chance.
      measure_seconds: of each measurement of two models against each other.
    """

    output: pathlib.Path
    rules: pathlib.Path | None = None
    objective: str = "onnxruntime"
    dimensions: tuple[tuple[str, int], ...] = ()
    assignments: tuple[str, ...] = ()
    iterations: int | None = None
    seconds: float = 60.0
    rollouts: int = 64
    measure_seconds: float = 10.0

    def training(self, run: Run) -> learning.Training:
        """What `tfrl train` would train."""
        values = parse_settings(self.assignments, settings_on_graphs(run.agent, len(run.models)))
        if self.iterations is not None:
            values["loop"]["iterations"] = self.iterations
        # Each model has as many as with a policy of its own.
        values["loop"]["iterations"] *= len(run.models)
        if run.reward:
            values["environment"]["reward"] = run.reward
        options = argparse.Namespace(
            models=run.models,
            agent=run.agent,
            seed=run.seed,
            rules=self.rules,
            objective=self.objective,
            dimensions=self.dimensions,
        )
        return learning.Training.of(options, values)

    def policy_directory(self, run: Run) -> pathlib.Path:
        """Where a run's policy is."""
        return self.output / "runs" / run.name / "policy"

    def problem(self, model: str) -> Problem:
        """A model to be optimised. The last one is remembered: models are large."""
        return _problem(model, self.rules, self.objective, self.dimensions)

    def about(self, model: str) -> dict[str, Any]:
        """What identifies a model with its rules and costs, as JSON values."""
        return {
            "model": model,
            "rules": str(self.rules) if self.rules else None,
            "rules_sha256": hashlib.sha256((self.rules or rules.PATH).read_bytes()).hexdigest(),
            "objective": self.objective,
            "dimensions": dict(self.dimensions),
        }


@functools.lru_cache(maxsize=1)
def _problem(
    model: str,
    rules_file: pathlib.Path | None,
    objective: str,
    dimensions: tuple[tuple[str, int], ...],
) -> Problem:
    options = argparse.Namespace(
        seed=0, rules=rules_file, objective=objective, dimensions=dimensions
    )
    return Problem.of(model, model_of(options, model), options)


def train(benchmark: Benchmark, run: Run) -> Record:
    """The record of one training run: of the one that is kept, or of a new one.

    Raises:
      UserError: the kept one was made with other settings.
    """
    training = benchmark.training(run)
    path = benchmark.output / "runs" / run.name
    with open_workdir(path, training.settings(), resume=True) as workdir:
        result = workdir.result()
        if result is None:
            result = learning.train(training, workdir)
    wanted = ("iterations", "environment_steps", "seconds", "training")
    return {
        **dataclasses.asdict(run),
        "models": list(run.models),
        **{name: result[name] for name in wanted},
        "evaluations": result["evaluation"]["iterations"],
    }


def search(benchmark: Benchmark, model: str, method: str) -> Record:
    """What a search comes to: the record that is kept, or a new one."""
    settings = {**benchmark.about(model), "method": method, "seconds": benchmark.seconds}
    path = benchmark.output / "searches" / f"{slug(model)}-{method}.json"

    def make() -> Record:
        budget = Budget(benchmark.seconds)
        return _record(model, method, benchmark.problem(model).search(method, budget))

    return kept(path, settings, make)


def play(benchmark: Benchmark, model: str, run: Run, *, in_disguise: bool = False) -> Record:
    """What a learned policy comes to: the record that is kept, or a new one.

    Args:
      benchmark: where it is kept, and the settings.
      model: that is rewritten; the policy need not have been trained on it.
      run: that the policy was learned in.
      in_disguise: whether nodes are shuffled and names changed before.
    """
    settings = {
        **benchmark.about(model),
        "training": benchmark.training(run).settings(),
        "seconds": benchmark.seconds,
        "rollouts": benchmark.rollouts,
        "disguise": _SEED_OF_DISGUISE if in_disguise else None,
    }
    suffix = "-disguised" if in_disguise else ""
    path = benchmark.output / "policies" / f"{slug(model)}-{run.name}{suffix}.json"

    def make() -> Record:
        problem = benchmark.problem(model)
        if in_disguise:
            other = disguised(problem.graph, _SEED_OF_DISGUISE)
            problem = dataclasses.replace(problem, name="disguised", graph=other)
        policy = GraphPolicy.load(benchmark.policy_directory(run), run.seed)
        found = problem.search("policy", Budget(benchmark.seconds), policy, benchmark.rollouts)
        record = _record(model, run.agent, found)
        return {
            **record,
            "seed": run.seed,
            "reward": run.reward,
            "trained_on": list(run.models),
            "in_disguise": in_disguise,
        }

    return kept(path, settings, make)


def play_by_chance(benchmark: Benchmark, model: str, learned: Record) -> Record:
    """What a policy comes to that has learned nothing: the record that is kept, or a new one.

    It begins and gives up its episodes as the others do, and has as many steps; all matches of all
    rules are equally likely.

    Args:
      benchmark: where it is kept, and the settings.
      model: that is rewritten.
      learned: of `play`, on the same model; with the same seed.
    """
    seed = learned["seed"]
    settings = {
        **benchmark.about(model),
        "seed": seed,
        "seconds": benchmark.seconds,
        "expansions": learned["expansions"],
    }

    def make() -> Record:
        config = benchmark.training(Run(learned["method"], (model,), 0)).problem.config
        policy = GraphPolicy(Chance(), dataclasses.asdict(config), seed)
        budget = Budget(benchmark.seconds, learned["expansions"])
        found = benchmark.problem(model).search("policy", budget, policy, sys.maxsize)
        return _record(model, CHANCE, found)

    path = benchmark.output / "policies" / f"{slug(model)}-{CHANCE}-seed-{seed}.json"
    return kept(path, settings, make)


def _record(model: str, method: str, result: Result) -> Record:
    if result.stopped == INTERRUPTED:
        # A search takes Ctrl-C for the end of its time; what it found until then is no record.
        raise KeyboardInterrupt
    return {
        "model": model,
        "method": method,
        "start_cost_ms": result.start_cost_ms,
        "cost_ms": result.best.cost_ms,
        "path": [[xfer, list(location)] for xfer, location in result.path],
        "expansions": result.expansions,
        "seconds": result.seconds,
        "stopped": result.stopped,
    }
