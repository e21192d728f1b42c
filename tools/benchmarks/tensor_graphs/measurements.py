"""The measurements of `tensor_graph_tables.py`. Each is a record in a file of its own."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

from environments.tensor_graphs.rules import files as rule_files
from environments.tensor_graphs.search import INTERRUPTED, Budget, Result
from tfrl_systems import experiments
from tfrl_systems.experiments import TrainingRun
from tfrl_systems.reporting import Reporter
from tfrl_systems.settings import option
from tfrl_systems.systems.tensor_graphs.policy import Chance, GraphPolicy
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem, Rewriting, find_model
from tools.benchmarks.shared import Record, identity_of, kept
from tools.benchmarks.tensor_graphs.cases import CHANCE, Run, slug
from tools.benchmarks.tensor_graphs.disguise import disguised

_SYSTEM = "tensor_graphs"
_SEED_OF_DISGUISE = 1


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """What is the same for all measurements.

    Attributes:
      output: directory for tables, pictures and all records.
      rewriting: rules, objective, and sizes for dimensions that models leave open.
      settings: settings of all training runs, by name, as for `experiments.train`.
      iterations: iterations for each model of a training run; by default those of tfrl train.
      seconds: the most time for each search, and for the episodes of a policy.
      rollouts: episodes that a policy plays; in the first it takes its likeliest actions.
      measure_seconds: seconds of each end-to-end comparison of two models.
    """

    output: pathlib.Path = option(metavar="DIR")
    rewriting: Rewriting = Rewriting()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    iterations: int | None = option(None, metavar="N", minimum=1)
    seconds: float = option(60.0, metavar="N", positive=True)
    rollouts: int = option(64, metavar="K", minimum=1)
    measure_seconds: float = option(10.0, metavar="N", positive=True)

    def arguments(self, run: Run) -> dict[str, Any]:
        """Return the arguments of `experiments.plan` and `experiments.train` for a run."""
        rewriting = dataclasses.asdict(self.rewriting)
        given = {"agent": run.agent, "seed": run.seed, "models": run.models, **rewriting}
        settings = dict(self.settings)
        if run.reward:
            settings["reward"] = run.reward
        if self.iterations is not None:
            settings["iterations"] = self.iterations
        # Each model gets as many iterations as if a policy learned on it alone.
        for_one = experiments.plan(_SYSTEM, settings=settings, **given).settings["loop"].iterations
        settings["iterations"] = for_one * len(run.models)
        return {**given, "settings": settings}

    def plan(self, run: Run) -> TrainingRun:
        """Return the training run that a run stands for."""
        return experiments.plan(_SYSTEM, **self.arguments(run))

    def policy_directory(self, run: Run) -> pathlib.Path:
        """Return the directory of a run's policy."""
        return self.output / "runs" / run.name / "policy"

    def problem(self, model: str) -> GraphProblem:
        """Return a model to optimise. Only the last one is cached, because models are large."""
        return _problem(model, self.rewriting)

    def about(self, model: str) -> dict[str, Any]:
        """Return what identifies a model with its rules and costs, as JSON values."""
        rules = self.rewriting.rules
        return {
            "model": model,
            "rules": str(rules) if rules else None,
            "rules_sha256": hashlib.sha256((rules or rule_files.PATH).read_bytes()).hexdigest(),
            "objective": self.rewriting.objective,
            "dimensions": dict(self.rewriting.dimensions),
        }


@functools.lru_cache(maxsize=1)
def _problem(model: str, rewriting: Rewriting) -> GraphProblem:
    return GraphProblem.of(model, find_model(model), rewriting)


def train(benchmark: Benchmark, run: Run) -> Record:
    """Return the record of a training run; train only if the directory holds no finished run.

    Raises:
      UserError: the run in the directory has other settings.
    """
    result = experiments.train(
        _SYSTEM,
        workdir=benchmark.output / "runs" / run.name,
        resume=True,
        reporter=Reporter(),
        **benchmark.arguments(run),
    ).result
    wanted = ("iterations", "environment_steps", "seconds", "training")
    return {
        **dataclasses.asdict(run),
        "models": list(run.models),
        **{name: result[name] for name in wanted},
        "evaluations": result["evaluation"]["iterations"],
    }


def search(benchmark: Benchmark, model: str, method: str) -> Record:
    """Return the record of a search; search only if no record is kept."""
    settings = {**benchmark.about(model), "method": method, "seconds": benchmark.seconds}
    path = benchmark.output / "searches" / f"{slug(model)}-{method}.json"

    def make() -> Record:
        budget = Budget(benchmark.seconds)
        return _record(model, method, benchmark.problem(model).search(method, budget))

    return kept(path, settings, make)


def play(benchmark: Benchmark, model: str, run: Run, *, in_disguise: bool = False) -> Record:
    """Return the record of a learned policy on a model; play only if no record is kept.

    Args:
      benchmark: directory and settings.
      model: name of the model to rewrite; the policy need not have been trained on it.
      run: the training run of the policy.
      in_disguise: whether to shuffle the model's nodes and change its names first.
    """
    settings = {
        **benchmark.about(model),
        "training": identity_of(benchmark.plan(run)),
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
    """Return the record of a policy that has learned nothing; play only if no record is kept.

    To this policy, all matches of all rules are equally likely. Its episodes begin and are given up
    as those of a learned policy, and it has as many steps.

    Args:
      benchmark: directory and settings.
      model: name of the model to rewrite.
      learned: record that `play` made on the same model; gives the seed and the number of steps.
    """
    seed = learned["seed"]
    settings = {
        **benchmark.about(model),
        "seed": seed,
        "seconds": benchmark.seconds,
        "expansions": learned["expansions"],
    }

    def make() -> Record:
        config = benchmark.plan(Run(learned["method"], (model,), 0)).settings["environment"]
        policy = GraphPolicy(Chance(), dataclasses.asdict(config), seed)
        budget = Budget(benchmark.seconds, learned["expansions"])
        found = benchmark.problem(model).search("policy", budget, policy, sys.maxsize)
        return _record(model, CHANCE, found)

    path = benchmark.output / "policies" / f"{slug(model)}-{CHANCE}-seed-{seed}.json"
    return kept(path, settings, make)


def _record(model: str, method: str, result: Result) -> Record:
    if result.stopped == INTERRUPTED:
        # After Ctrl-C, a search returns what it has found. That must not be kept as a record.
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
