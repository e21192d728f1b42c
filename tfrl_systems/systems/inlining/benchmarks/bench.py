"""The benchmarks of inlining: what learning to inline costs, compared with plain compiling."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from environments.errors import Failure, UserError
from environments.inlining.collection.store import Trajectory, TrajectoryStore
from environments.inlining.collection.tasks import Play
from environments.inlining.compilers.compilation import CompilerError
from environments.inlining.compilers.compiler import Compiler, run_policy
from environments.inlining.compilers.embedded import EmbeddedLlvm
from environments.inlining.compilers.system_clang import SystemClang
from environments.inlining.corpus.building import build_corpus
from environments.inlining.corpus.modules import Corpus, Module
from environments.inlining.features import feature_names
from environments.inlining.heuristics import Policy, make_heuristic, row_by_row
from environments.inlining.plugin.compiler import make_clang
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.inlining.benchmarks.steering import (
    compile_plainly,
    measure_decisions,
    measure_huge_functions,
    plugin_option,
    take_turns,
)
from tfrl_systems.systems.inlining.policies import load_policy
from tfrl_systems.systems.inlining.problem import SCOPES, Benchmarks
from tfrl_systems.systems.inlining.workers import make_collector

_CLANGS = (*(f"clang-{version}" for version in range(23, 16, -1)), "clang")
_MAX_TIMED_ROWS = 2000
_CONTAINERS = pathlib.Path(__file__).with_name("containers.h")
_USES = """\
%(type)s total_%(name)s(List<%(type)s>& list) {
  sort(list, Up());
  %(type)s sum = 0;
  for (%(type)s one : list) sum = sum + one;
  return sum;
}
void order_%(name)s(List<%(type)s>& list) { sort(list, Down()); }
%(type)s count_%(name)s(List<int>& keys) {
  Table<int, %(type)s> table;
  for (int key : keys) table.at(key %% 17) = table.at(key %% 17) + 1;
  List<%(type)s> counts;
  for (Entry<int, %(type)s>& one : table.entries()) counts.push(one.value);
  order_%(name)s(counts);
  return counts.empty() ? 0 : counts[0];
}
"""
_TYPES = ("int", "long", "double", "float", "short", "unsigned char")


def measure(settings: Benchmarks, reporter: Reporter) -> dict[str, Any]:
    """Measure, and return what `tfrl bench inlining --json` prints."""
    embedded = EmbeddedLlvm()
    collect = Collect.with_workers(settings.workers)
    with (
        contextlib.closing(embedded),
        _corpus(settings.corpus) as corpus,
        _clang(settings.compiler) as clang,
    ):
        modules = _spread(corpus.modules, settings.modules)
        played = _play(modules, collect, reporter)
        modules = [module for module in modules if module.name in played]
        policy = (
            _fit_usual_policy(played) if settings.policy is None else load_policy(settings.policy)
        )
        benchmarks: list[dict[str, Any]] = []
        if clang is None:
            reporter.say("no clang of version 17 or newer on PATH: nothing is compared with one")
        else:
            option = plugin_option(clang, policy, reporter)
            compiled, costs, decisions = _measure(
                clang, embedded, modules, policy, option, settings.rounds, reporter
            )
            benchmarks += _ratios(costs, decisions, clang)
            if option is not None:
                benchmarks.append(measure_decisions(clang, option, compiled))
                benchmarks += measure_huge_functions(
                    clang.executable, option, settings.huge_calls, settings.rounds, reporter
                )
        rows = np.concatenate([trajectory.features for trajectory in played.values()])
        names = feature_names(embedded.announced)
        benchmarks.append(_time_policy("policy_us_per_decision", policy, rows, names))
        inside = rows[rows[:, names.index(SCOPES["linkonce"])] == 1]
        if len(inside):
            # A policy learned with a scope need not be asked about other call sites.
            name = "policy_us_per_decision_in_scope"
            benchmarks.append(_time_policy(name, policy, inside, names))
        benchmarks.append(_time_trajectories(modules, policy, collect, settings.rounds))
    return {"benchmarks": benchmarks, "modules": [module.name for module in modules]}


@contextlib.contextmanager
def _corpus(directory: pathlib.Path | None) -> Iterator[Corpus]:
    if directory is not None:
        yield Corpus.load(directory)
        return
    with tempfile.TemporaryDirectory(prefix="tfrl-bench-") as scratch:
        yield _build_small_corpus(pathlib.Path(scratch))


def _build_small_corpus(directory: pathlib.Path) -> Corpus:
    """Compile uses of the containers with the embedded clang, in an empty directory.

    Raises:
      UserError: the embedded clang is not installed.
    """
    sources = directory / "containers"
    sources.mkdir()
    containers = _CONTAINERS.read_text(encoding="utf-8")
    for count in range(1, len(_TYPES) + 1):
        uses = [
            _USES % {"type": type_name, "name": type_name.split()[-1]}
            for type_name in _TYPES[:count]
        ]
        (sources / f"types_{count}.cc").write_text(containers + "".join(uses))
    build_corpus([sources], directory / "corpus")
    return Corpus.load(directory / "corpus")


@contextlib.contextmanager
def _clang(name: str | None) -> Iterator[SystemClang | None]:
    names = [name] if name is not None else [clang for clang in _CLANGS if shutil.which(clang)]
    if not names:
        yield None
        return
    clang = make_clang(names[0])
    try:
        yield clang
    finally:
        clang.close()


def _spread(modules: Sequence[Module], count: int) -> list[Module]:
    """Choose `count` modules at most, evenly spread by the size of their bitcode."""
    ordered = sorted(modules, key=lambda module: (module.path.stat().st_size, module.name))
    places = (np.arange(count) + 0.5) * len(ordered) / count
    return [ordered[k] for k in np.unique(places.astype(int))]


def _play(modules: Sequence[Module], collect: Collect, reporter: Reporter) -> dict[str, Trajectory]:
    """Compile modules under LLVM's own decisions; report and leave out those that fail."""
    with make_collector("embedded", TrajectoryStore(), collect) as collector:
        played = collector.play(modules, make_heuristic("default"))
    for result in played:
        if isinstance(result, Failure):
            reporter.say(f"left out: {result.message}")
    trajectories = {
        trajectory.module: trajectory for trajectory in played if isinstance(trajectory, Trajectory)
    }
    if not sum(len(trajectory.decisions) for trajectory in trajectories.values()):
        raise UserError(
            f"bench: expected modules with call sites to decide, found none among {len(modules)}; "
            "name another --corpus, or more --modules"
        )
    return trajectories


def _fit_usual_policy(played: Mapping[str, Trajectory]) -> Policy:
    """Fit a policy of the usual size; only the time that it takes matters here."""
    from tfrl_systems.systems.inlining.imitation import cloning
    from tfrl_systems.systems.inlining.policy.decision_policy import to_numpy

    names = next(iter(played.values())).names
    features = np.concatenate([trajectory.features for trajectory in played.values()])
    decisions = np.concatenate([trajectory.decisions for trajectory in played.values()])
    # Some decisions are flipped, so that every tree has something to learn. The margin makes the
    # policy follow the default all the same, so that the same objects are compiled.
    turned = np.random.default_rng(0).random(len(decisions)) < 0.2
    labels = np.where(turned, 1 - decisions, decisions)
    config = cloning.Config(margin=30.0, scope_feature=SCOPES["linkonce"])
    return to_numpy(cloning.fit(config, names, features, labels), "fitted to the default")


def _measure(
    clang: SystemClang,
    embedded: EmbeddedLlvm,
    modules: Sequence[Module],
    policy: Policy,
    option: str | None,
    rounds: int,
    reporter: Reporter,
) -> tuple[list[Module], dict[str, list[float]], int]:
    """Compile modules in several ways, in turns.

    Returns:
      The modules that compile; for each way the CPU time of each of them in seconds, as the median
      over the rounds; and the number of call sites in all of them.
    """
    ways: dict[str, Callable[[Module], object]] = {
        "plain": lambda module: compile_plainly(clang, module),
        "scored": lambda module: _score(clang, module, policy),
        "advised": lambda module: run_policy(clang, module, lambda site: int(site.default)),
        "embedded": lambda module: _score(embedded, module, policy),
    }
    if option is not None:
        ways["steered"] = lambda module: compile_plainly(clang, module, (option,))
    costs: dict[str, list[float]] = {way: [] for way in ways}
    compiled, decisions = [], 0
    with _on_one_processor():
        advance = reporter.task("compiling in turns", len(modules))
        for module in modules:
            try:
                # The first compile warms the file system and starts what is started only once.
                decisions_here = len(_score(clang, module, policy).decisions)
                of_module = {way: functools.partial(ways[way], module) for way in ways}
                taken = take_turns(of_module, rounds + 1)
            except CompilerError as error:
                reporter.say(f"left out: {error}")
                continue
            finally:
                advance(1)
            compiled.append(module)
            decisions += decisions_here
            for way, seconds in taken.items():
                costs[way].append(statistics.median(seconds[1:]))
    if not compiled:
        raise UserError(
            f"bench: expected modules that {clang.name} compiles, found none; name a newer clang "
            "by --compiler, or a corpus that was built with this one"
        )
    return compiled, costs, decisions


def _score(compiler: Compiler, module: Module, policy: Policy) -> Trajectory:
    """Make one trajectory, as collection does."""
    return Play(policy).run(compiler, module)


@contextlib.contextmanager
def _on_one_processor() -> Iterator[None]:
    """Keep this process and its compilers on one processor.

    They take turns, so a second processor would only add the cost of waking it.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _ratios(
    costs: Mapping[str, list[float]], decisions: int, clang: SystemClang
) -> list[dict[str, Any]]:
    plain = costs["plain"]
    plain_s = sum(plain)
    benchmarks: list[dict[str, Any]] = []

    def add(name: str, ratio: float) -> None:
        benchmarks.append({"name": name, "ratio": ratio, "against": f"{clang.name} -Oz -c"})

    for name, way in (("", "scored"), ("embedded_", "embedded")):
        figure = f"{name}scored_trajectory_cpu_over_clang"
        add(figure, sum(costs[way]) / plain_s)
        ratios = (cost / of_clang for cost, of_clang in zip(costs[way], plain, strict=True))
        add(f"{figure}_of_the_median_module", statistics.median(ratios))
    of_decision = {"channel": sum(costs["advised"]) - plain_s, "plain_clang": plain_s}
    for name, seconds in of_decision.items():
        value = 1e6 * seconds / max(decisions, 1)
        benchmarks.append({"name": f"{name}_us_per_decision", "value": value, "unit": "us"})
    if "steered" in costs:
        add("steered_build_cpu_over_plain", sum(costs["steered"]) / plain_s)
    return benchmarks


def _time_policy(
    name: str, policy: Policy, rows: np.ndarray, names: tuple[str, ...]
) -> dict[str, Any]:
    """Time decisions on one row at a time, as a compile asks for them."""
    decide = row_by_row(policy.begin("bench", names))
    timed = rows[:: -(-len(rows) // _MAX_TIMED_ROWS)].tolist()
    taken = []
    for _ in range(5):
        began_s = time.process_time()
        for k, row in enumerate(timed):
            decide(row, k)
        taken.append(time.process_time() - began_s)
    value = 1e6 * statistics.median(taken) / len(timed)
    return {"name": name, "value": value, "unit": "us"}


def _time_trajectories(
    modules: Sequence[Module], policy: Policy, collect: Collect, rounds: int
) -> dict[str, Any]:
    taken = []
    with make_collector("embedded", TrajectoryStore(), collect) as collector:
        for number in range(rounds + 1):
            collector.store = TrajectoryStore()
            began_s = time.monotonic()
            collector.play(modules, policy)
            if number:
                taken.append(time.monotonic() - began_s)
    value = len(modules) / statistics.median(taken)
    return {"name": "trajectories_per_second", "value": value, "unit": "1/s"}
