"""Evaluation of inlining policies: how small they make the modules of a corpus."""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from environments.errors import Failure, UserError
from environments.inlining.collection.store import Trajectory, TrajectoryStore
from environments.inlining.compilers.compiler import make_compiler
from environments.inlining.corpus.modules import Corpus, Module
from environments.inlining.heuristics import Default, Policy
from tfrl_systems.cpu_time import cpu_s
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.inlining.linking import images_json, link_projects
from tfrl_systems.systems.inlining.policies import load_policy
from tfrl_systems.systems.inlining.problem import Evaluation
from tfrl_systems.systems.inlining.workers import make_collector


@dataclasses.dataclass(frozen=True)
class Played:
    """The compiles of all modules under one policy.

    Attributes:
      compiles: the compiles that succeeded, by name of the module.
      failures: why the other modules failed, by name of the module.
      seconds: wall time, in seconds.
      cpu_s: CPU time of this process and of the compilers, in seconds.
    """

    compiles: dict[str, Trajectory]
    failures: dict[str, str]
    seconds: float
    cpu_s: float


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """One policy beside the default.

    Attributes:
      name: the policy, as the user named it.
      rows: (module, its compile under the policy, its compile under the default) for each module
        that compiles under both.
      played: all compiles under the policy.
      of_default: all compiles under the default.
    """

    name: str
    rows: tuple[tuple[Module, Trajectory, Trajectory], ...]
    played: Played
    of_default: Played


def evaluate(
    names: Sequence[str], settings: Evaluation, seed: int, reporter: Reporter
) -> dict[str, Any]:
    """Evaluate, and return what `tfrl evaluate inlining --json` prints; see `System.evaluate`."""
    policies = [load_policy(name, seed) for name in names]
    modules = Corpus.load(settings.corpus).modules
    of_default = _play(settings, modules, Default(), reporter)
    evaluated = [
        _evaluate(name, _play(settings, modules, policy, reporter), of_default, modules)
        if policy.fingerprint != Default.fingerprint
        else _evaluate(name, of_default, of_default, modules)
        for name, policy in zip(names, policies, strict=True)
    ]
    failures = _failures(evaluated)
    for message in failures.values():
        reporter.say(f"not compiled: {message}")
    if not any(evaluation.rows for evaluation in evaluated):
        raise UserError(
            f"{settings.corpus}: expected modules that compile, found that all {len(modules)} "
            f"failed ({next(iter(failures.values()))})"
        )
    described = _to_json(settings, evaluated, failures)
    if settings.link:
        compiled = [module for module in modules if module.name not in failures]
        default_images = link_projects(settings, compiled, Default(), reporter)
        for entry, policy in zip(described["policies"], policies, strict=True):
            images = default_images
            if policy.fingerprint != Default.fingerprint:
                images = link_projects(settings, compiled, policy, reporter)
            entry["images"] = images_json(images, default_images)
    return described


def _play(
    settings: Evaluation, modules: Sequence[Module], policy: Policy, reporter: Reporter
) -> Played:
    # To measure what compiling twice costs, both compiles must be made, so the cache is not used.
    store = TrajectoryStore(None if settings.never_worse else settings.cache)
    started_s, started_cpu_s = time.monotonic(), cpu_s()
    collect = Collect.with_workers(settings.workers)
    with make_collector(settings.compiler, store, collect) as collector:
        progress = reporter.task(policy.name, len(modules))
        if policy.fingerprint == Default.fingerprint:
            played = collector.play_default(modules, progress)
        else:
            played = collector.play(modules, policy, progress)
    store.close()
    return Played(
        {result.module: result for result in played if isinstance(result, Trajectory)},
        {result.name: result.message for result in played if isinstance(result, Failure)},
        time.monotonic() - started_s,
        # The compilers' time is counted once they have ended. Closing the collector waits for that.
        cpu_s() - started_cpu_s,
    )


def _evaluate(
    name: str, played: Played, of_default: Played, modules: Sequence[Module]
) -> Evaluated:
    rows = tuple(
        (module, played.compiles[module.name], of_default.compiles[module.name])
        for module in modules
        if module.name in played.compiles and module.name in of_default.compiles
    )
    return Evaluated(name, rows, played, of_default)


def _failures(evaluated: Sequence[Evaluated]) -> dict[str, str]:
    messages: dict[str, str] = {}
    for evaluation in evaluated:
        messages |= {**evaluation.of_default.failures, **evaluation.played.failures}
    return dict(sorted(messages.items()))


def _totals(rows: Sequence[tuple[Module, Trajectory, Trajectory]]) -> dict[str, Any]:
    size = sum(learned.size.text_bytes for _, learned, _ in rows)
    default = sum(learned.size.text_bytes for _, _, learned in rows)
    return {
        "modules": len(rows),
        "size_bytes": size,
        "default_size_bytes": default,
        "reduction_percent": 100 * (1 - size / default) if default else 0.0,
        "exec_bytes": sum(learned.size.exec_bytes for _, learned, _ in rows),
        "default_exec_bytes": sum(learned.size.exec_bytes for _, _, learned in rows),
        "worse_modules": sum(
            learned.size.text_bytes > default.size.text_bytes for _, learned, default in rows
        ),
    }


def _by_project(evaluation: Evaluated) -> dict[str, list[tuple[Module, Trajectory, Trajectory]]]:
    rows = collections.defaultdict(list)
    for row in evaluation.rows:
        rows[row[0].project].append(row)
    return dict(sorted(rows.items()))


def _smaller(evaluation: Evaluated) -> tuple[tuple[Module, Trajectory, Trajectory], ...]:
    """Return the rows with the smaller of the two objects in place of the policy's."""
    return tuple(
        (module, min(default, learned, key=lambda played: played.size.text_bytes), default)
        for module, learned, default in evaluation.rows
    )


def _never_worse(evaluation: Evaluated) -> dict[str, Any]:
    """Return the sizes if the smaller object is kept, and what the second compile costs."""
    totals = _totals(_smaller(evaluation))
    return {
        **{name: totals[name] for name in ("size_bytes", "exec_bytes", "reduction_percent")},
        "default_kept": _totals(evaluation.rows)["worse_modules"],
        "extra_seconds": evaluation.of_default.seconds,
        "cpu_ratio": (evaluation.played.cpu_s + evaluation.of_default.cpu_s)
        / evaluation.of_default.cpu_s,
    }


def _to_json(
    settings: Evaluation, evaluated: Sequence[Evaluated], failures: Mapping[str, str]
) -> dict[str, Any]:
    policies = []
    for evaluation in evaluated:
        described = {
            "policy": evaluation.name,
            "is_default": evaluation.played is evaluation.of_default,
            **_totals(evaluation.rows),
            "seconds": evaluation.played.seconds,
            "cpu_seconds": evaluation.played.cpu_s,
            "projects": [
                {"project": project, **_totals(rows)}
                for project, rows in _by_project(evaluation).items()
            ],
            "per_module": [_module_json(*row) for row in evaluation.rows],
        }
        if settings.never_worse:
            described["never_worse"] = _never_worse(evaluation)
        policies.append(described)
    return {
        "compiler": make_compiler(settings.compiler).identity,
        "corpus": str(settings.corpus),
        "policies": policies,
        "failures": [{"module": name, "error": message} for name, message in failures.items()],
    }


def _module_json(module: Module, played: Trajectory, default: Trajectory) -> dict[str, Any]:
    return {
        "module": module.name,
        "size_bytes": played.size.text_bytes,
        "default_size_bytes": default.size.text_bytes,
        "exec_bytes": played.size.exec_bytes,
        "default_exec_bytes": default.size.exec_bytes,
        "decisions": played.decisions.tolist(),
    }
