"""One fold of `inlining_tables.py`: learn on the other projects, measure on its own."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from environments.errors import Failure, UserError
from environments.inlining.collection.collector import Collector
from environments.inlining.collection.store import Trajectory
from environments.inlining.corpus.modules import Corpus, Module
from environments.inlining.exploration.explore import ExplorationConfig, Explore, Explored
from environments.inlining.heuristics import Policy, make_heuristic
from environments.inlining.linking.objective import Objective
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.inlining.corpora import set_aside, small_modules
from tfrl_systems.systems.inlining.imitation import agent as decision_agent
from tfrl_systems.systems.inlining.imitation.decision_problem import InliningProblem
from tfrl_systems.systems.inlining.imitation.loop import Config
from tfrl_systems.systems.inlining.imitation.run import best_iteration, load_policies, run_bc_max
from tfrl_systems.systems.inlining.linking import images_json, link_projects
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.inlining.problem import SCOPES, Evaluation
from tfrl_systems.training.checkpoints import open_workdir
from tools.benchmarks import shared

FIXED_POLICIES = ("default", "always", "never", "cost<-5", "cost<-20", "cost<-35")
# Name in the records -> whether to explore (BC-Max, Algorithm 3).
LEARNED = {"learned": True, "learned without exploration": False}

Sizes = dict[str, list[int]]
"""[text bytes, bytes of code] by name of the module."""


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """What is the same for all folds and seeds.

    Attributes:
      modules: the modules of all folds.
      folds: names of the projects in each fold.
      config: settings of the loop; each run sets the seed and whether to explore.
      agent_config: settings of the agent.
      objective: what a byte of an object counts where policies are judged.
      label_objective: the same in what they learn from.
      directory: directory of the corpus.
      exploration: settings of the exploration. All runs use the same seed, so that explorations
        around the default, which are most of the work, are made only once.
      settings: everything but fold and seed that decides the outcome, as JSON values.
      output: directory of all records and tables.
      asked: how to compile the objects that are linked.
    """

    modules: tuple[Module, ...]
    folds: tuple[tuple[str, ...], ...]
    config: Config
    agent_config: decision_agent.Config
    objective: Objective
    label_objective: Objective
    directory: pathlib.Path
    exploration: ExplorationConfig
    settings: Mapping[str, Any]
    output: pathlib.Path
    asked: Evaluation

    def in_directory(self, name: str) -> Benchmark:
        """Return the same with its training runs in a directory of their own."""
        return dataclasses.replace(self, output=self.output / name)

    def divide(self, fold: int) -> tuple[list[Module], list[Module]]:
        """Return the modules to learn on, and those that are held out."""
        held_out = self.folds[fold]
        return (
            [one for one in self.modules if one.project not in held_out],
            [one for one in self.modules if one.project in held_out],
        )


def make_folds(modules: Sequence[Module], num_folds: int) -> tuple[tuple[str, ...], ...]:
    """Divide projects into folds that have about as many bytes of bitcode in each language.

    Projects are dealt out from large to small, each to the fold with the fewest bytes of its
    language.

    Raises:
      UserError: there are fewer projects than folds.
    """
    size_bytes: dict[str, int] = {}
    language: dict[str, str] = {}
    for module in modules:
        size = module.path.stat().st_size
        size_bytes[module.project] = size_bytes.get(module.project, 0) + size
        language.setdefault(module.project, module.language)
    if len(size_bytes) < num_folds or num_folds < 2:
        raise UserError(
            f"folds: expected from 2 to {len(size_bytes)}, the projects of the corpus, found "
            f"{num_folds}; change --folds or take a larger corpus"
        )
    filled: dict[tuple[int, str], int] = {}
    folds: list[list[str]] = [[] for _ in range(num_folds)]
    for project in sorted(size_bytes, key=lambda one: (-size_bytes[one], one)):
        own = language[project]
        # Ties, as between folds without this language, go to the fold with the fewest projects.
        fold = min(range(num_folds), key=lambda k: (filled.get((k, own), 0), len(folds[k]), k))
        filled[fold, own] = filled.get((fold, own), 0) + size_bytes[project]
        folds[fold].append(project)
    return tuple(tuple(sorted(projects)) for projects in folds)


@dataclasses.dataclass(frozen=True)
class Learned:
    """What one training came to.

    Attributes:
      fitted: the policy of each iteration.
      written: for each iteration the policy that training would write after it.
    """

    fitted: list[CallSitePolicy]
    written: list[CallSitePolicy]


def learn(
    benchmark: Benchmark, fold: int, seed: int, name: str, collector: Collector, reporter: Reporter
) -> Learned:
    """Learn on the other folds as `tfrl train inlining` does; `name` is a key of `LEARNED`."""
    modules, _ = benchmark.divide(fold)
    learned_on, chosen_on = set_aside(Corpus(benchmark.directory, tuple(modules)))
    learned_on = small_modules(learned_on, benchmark.exploration.max_bitcode_bytes, reporter)
    config = dataclasses.replace(benchmark.config, seed=seed, explore=LEARNED[name])
    label = f"fold {fold + 1}, seed {seed}, {name}"

    def make_problem(part: Sequence[Module], objective: Objective) -> InliningProblem:
        return InliningProblem(
            collector,
            part,
            benchmark.exploration,
            lambda: objective,
            lambda what, total: reporter.task(f"{label}: {what}", total),
            seed,
        )

    problem = make_problem(learned_on, benchmark.label_objective)
    chosen = {"held_out": benchmark.folds[fold], "seed": seed, "explore": config.explore}
    settings = {**benchmark.settings, **chosen}
    metadata = {
        **{"environment": "inlining", "agent": "bc_max", "seed": seed, "run": settings},
        **{name: settings[name] for name in ("compiler", "corpus_sha256")},
    }

    def tell(record: Mapping[str, Any], resumed: bool) -> None:
        reporter.say(f"{label}: {_describe(record, resumed)}")

    path = benchmark.output / "runs" / "-".join([_run_name(fold, seed), *name.split()])
    with open_workdir(path, settings, resume=True) as workdir:
        result = run_bc_max(
            problem,
            make_problem(chosen_on, benchmark.objective),
            None,
            config,
            benchmark.agent_config,
            workdir,
            metadata,
            tell,
        )
        for message in problem.failures.values():
            reporter.say(f"{label}: left out: {message}")
        policies = load_policies(workdir, config.iterations)
    records = result["evaluation"]["iterations"]
    best = [best_iteration(records[: 1 + k]) for k in range(len(policies))]
    return Learned(policies, [policies[number - 1] for number in best])


def _describe(record: Mapping[str, Any], resumed: bool) -> str:
    return (
        f"iteration {record['number']}{' (kept)' if resumed else ''}: "
        f"{record['policy']} saves {record['policy_saving_percent']:.2f}% and the best known "
        f"{record['oracle_saving_percent']:.2f}% where it learns; {record['learned']} with "
        f"margins {record['margin']:g} and {record['outside_margin']:g} scores "
        f"{record['score']:.2f}; {record['collecting_s']:.0f} s collecting, "
        f"{record['training_s']:.0f} s fitting, {record['validating_s']:.0f} s validating"
    )


def measure(
    benchmark: Benchmark,
    fold: int,
    seed: int,
    learned: Mapping[str, Sequence[CallSitePolicy]],
    collector: Collector,
    reporter: Reporter,
) -> dict[str, Any]:
    """Measure the sizes of the fold's modules under all policies.

    A module that fails under the default, under exploration or under a learned policy is left out
    of all results. One that fails under another policy (`always` can make a module too large to
    compile) is left out of that policy's results.
    """
    _, modules = benchmark.divide(fold)
    failures: dict[str, str] = {}

    def sizes(results: Sequence[Trajectory | Failure], needed: bool = True) -> Sizes:
        failed = {one.name: one.message for one in results if isinstance(one, Failure)}
        failures.update(failed if needed else {})
        return {
            one.module: [one.size.text_bytes, one.size.exec_bytes]
            for one in results
            if isinstance(one, Trajectory)
        }

    def play(policy: Policy, needed: bool = True) -> Sizes:
        task = reporter.task(f"fold {fold + 1}, seed {seed}: {policy.name}", len(modules))
        return sizes(collector.play(modules, policy, task), needed)

    task = reporter.task(f"fold {fold + 1}, seed {seed}: explored", len(modules))
    explored = _explore(benchmark, modules, collector, task)
    found = {
        "fixed": {name: play(make_heuristic(name), name == "default") for name in FIXED_POLICIES},
        "explored": sizes([one if isinstance(one, Failure) else one.best for one in explored]),
        **{name: [play(policy) for policy in policies] for name, policies in learned.items()},
    }
    return {
        "modules": {
            one.name: {"project": one.project, "language": one.language}
            for one in modules
            if one.name not in failures
        },
        "failures": failures,
        "sizes": found,
        "images": _link(benchmark, modules, failures, learned["learned"], reporter),
    }


def _link(
    benchmark: Benchmark,
    modules: Sequence[Module],
    failures: Mapping[str, str],
    policies: Sequence[CallSitePolicy],
    reporter: Reporter,
) -> list[list[dict[str, Any]]]:
    """Link the projects under the policy of each iteration and the default; see `images_json`."""
    compiled = [one for one in modules if one.name not in failures]
    of_default = link_projects(benchmark.asked, compiled, make_heuristic("default"), reporter)
    found: dict[str, list[dict[str, Any]]] = {}
    for policy in policies:
        if policy.fingerprint not in found:
            images = link_projects(benchmark.asked, compiled, policy, reporter)
            found[policy.fingerprint] = images_json(images, of_default)
    return [found[policy.fingerprint] for policy in policies]


def _explore(
    benchmark: Benchmark,
    modules: Sequence[Module],
    collector: Collector,
    progress: Callable[[int], None],
) -> list[Explored | Failure]:
    """Explore around the default, as learning would if these modules were not held out."""
    scope = SCOPES["linkonce"] if benchmark.config.scoped else ""
    task = Explore(
        make_heuristic("default"),
        benchmark.exploration,
        scope_feature=scope,
        objective=benchmark.label_objective,
    )
    return collector.map(task, modules, progress)


def run_fold(
    benchmark: Benchmark, fold: int, seed: int, collector: Collector, reporter: Reporter
) -> dict[str, Any]:
    """Return the record of one fold and seed; make it if none is kept.

    Raises:
      UserError: the kept record was made with other settings.
    """
    path = benchmark.output / "folds" / f"{_run_name(fold, seed)}.json"
    if path.exists():
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["settings"] != benchmark.settings:
            raise UserError(
                f"{path}: expected a record of the same corpus and settings, found others; name "
                "another directory with --output"
            )
        if record["iterations"] == benchmark.config.iterations:
            return record
    started_s = time.monotonic()
    learned = {
        name: learn(benchmark, fold, seed, name, collector, reporter).written for name in LEARNED
    }
    record = {
        "fold": fold,
        "seed": seed,
        "iterations": benchmark.config.iterations,
        "settings": benchmark.settings,
        "projects": benchmark.folds[fold],
        "baselines": benchmark.config.baselines,
        "policies_sha256": {
            name: [one.fingerprint for one in policies] for name, policies in learned.items()
        },
        **measure(benchmark, fold, seed, learned, collector, reporter),
        "seconds": 0.0,
    }
    record["seconds"] = time.monotonic() - started_s
    shared.keep(path, record)
    reporter.say(f"fold {fold + 1}, seed {seed}: done in {record['seconds']:.0f} s")
    return record


def _run_name(fold: int, seed: int) -> str:
    return f"fold-{fold + 1}-seed-{seed}"
