"""`tfrl evaluate inlining`, once the command line is read."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

from environments.errors import UserError
from environments.inlining.collection import Failure
from environments.inlining.compilers import make_compiler
from environments.inlining.corpus import Corpus, Module
from environments.inlining.heuristics import Policy, make_heuristic
from environments.inlining.trajectories import Trajectory, TrajectoryStore
from tfrl_systems.cli.console import Progress, format_table, percent, say, show, show_json
from tfrl_systems.cli.cpu_time import cpu_s
from tfrl_systems.cli.inlining.policies import load_policy
from tfrl_systems.cli.inlining.workers import make_collector


@dataclasses.dataclass(frozen=True)
class Played:
    """All modules under one policy.

    Attributes:
      compiles: by name of the module; those that failed are not there.
      failures: why, by name of the module.
      seconds: wall-clock time.
      cpu_s: CPU time of this process and of the compilers.
    """

    compiles: dict[str, Trajectory]
    failures: dict[str, str]
    seconds: float
    cpu_s: float


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """One policy beside the default.

    Attributes:
      name: as the user called it.
      rows: (module, under the policy, under the default) where both could be compiled.
      played: all of the policy.
      of_default: all of the default.
    """

    name: str
    rows: tuple[tuple[Module, Trajectory, Trajectory], ...]
    played: Played
    of_default: Played


def run(options: argparse.Namespace) -> int:
    """Evaluates as the command line says."""
    policies = [load_policy(name, options.seed) for name in options.policies]
    modules = Corpus.load(options.corpus).modules
    with Progress() as progress:
        of_default = _play(options, modules, make_heuristic("default"), progress)
        evaluated = [
            _evaluate(name, _play(options, modules, policy, progress), of_default, modules)
            if policy.fingerprint != "default"
            else _evaluate(name, of_default, of_default, modules)
            for name, policy in zip(options.policies, policies, strict=True)
        ]
    failures = _failures(evaluated)
    for message in failures.values():
        say(f"not compiled: {message}")
    if not any(one.rows for one in evaluated):
        raise UserError(
            f"{options.corpus}: expected modules that compile, found that all {len(modules)} "
            f"failed ({next(iter(failures.values()))})"
        )
    if options.json:
        show_json(_to_json(options, evaluated, failures))
    else:
        _show_tables(evaluated, never_worse=options.never_worse)
    return 0


def _play(
    options: argparse.Namespace,
    modules: Sequence[Module],
    policy: Policy,
    progress: Progress,
) -> Played:
    # What compiling twice costs can be told only where both compiles are made.
    store = TrajectoryStore(None if options.never_worse else options.cache)
    started_s, started_cpu_s = time.monotonic(), cpu_s()
    with make_collector(options.compiler, store, options.workers) as collector:
        played = collector.play(modules, policy, progress.task(policy.name, len(modules)))
    store.close()
    return Played(
        {one.module: one for one in played if isinstance(one, Trajectory)},
        {one.module: one.message for one in played if isinstance(one, Failure)},
        time.monotonic() - started_s,
        # The compilers' time counts once they have ended, which closing the collector waits for.
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
    found: dict[str, str] = {}
    for one in evaluated:
        found |= {**one.of_default.failures, **one.played.failures}
    return dict(sorted(found.items()))


def _totals(rows: Sequence[tuple[Module, Trajectory, Trajectory]]) -> dict[str, Any]:
    size = sum(one.size.text_bytes for _, one, _ in rows)
    default = sum(one.size.text_bytes for _, _, one in rows)
    return {
        "modules": len(rows),
        "size_bytes": size,
        "default_size_bytes": default,
        "reduction_percent": 100 * (1 - size / default) if default else 0.0,
        "exec_bytes": sum(one.size.exec_bytes for _, one, _ in rows),
        "default_exec_bytes": sum(one.size.exec_bytes for _, _, one in rows),
        "worse_modules": sum(one.size.text_bytes > other.size.text_bytes for _, one, other in rows),
    }


def _by_project(one: Evaluated) -> dict[str, list[tuple[Module, Trajectory, Trajectory]]]:
    found = collections.defaultdict(list)
    for row in one.rows:
        found[row[0].project].append(row)
    return dict(sorted(found.items()))


def _smaller(one: Evaluated) -> tuple[tuple[Module, Trajectory, Trajectory], ...]:
    """The rows with the smaller object in place of the policy's."""
    return tuple(
        (module, min(default, learned, key=lambda played: played.size.text_bytes), default)
        for module, learned, default in one.rows
    )


def _never_worse(one: Evaluated) -> dict[str, Any]:
    """Keeping the smaller object, and what the second compile costs."""
    kept = _totals(_smaller(one))
    return {
        **{name: kept[name] for name in ("size_bytes", "exec_bytes", "reduction_percent")},
        "default_kept": _totals(one.rows)["worse_modules"],
        "extra_seconds": one.of_default.seconds,
        "cpu_ratio": (one.played.cpu_s + one.of_default.cpu_s) / one.of_default.cpu_s,
    }


def _to_json(
    options: argparse.Namespace, evaluated: Sequence[Evaluated], failures: Mapping[str, str]
) -> dict[str, Any]:
    policies = []
    for one in evaluated:
        described = {
            "policy": one.name,
            **_totals(one.rows),
            "seconds": one.played.seconds,
            "cpu_seconds": one.played.cpu_s,
            "projects": [
                {"project": project, **_totals(rows)} for project, rows in _by_project(one).items()
            ],
            "per_module": [_module_json(*row) for row in one.rows],
        }
        if options.never_worse:
            described["never_worse"] = _never_worse(one)
        policies.append(described)
    return {
        "compiler": make_compiler(options.compiler).identity,
        "corpus": str(options.corpus),
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


def _show_tables(evaluated: Sequence[Evaluated], *, never_worse: bool) -> None:
    header = ["", "modules", "bytes", "default", "change", "exec", "worse", "seconds"]
    rows = []
    for one in evaluated:
        rows.append([*_cells(one.name, _totals(one.rows)), f"{one.played.seconds:.1f}"])
        if never_worse:
            found = _never_worse(one)
            seconds = f"{one.played.seconds + found['extra_seconds']:.1f}"
            rows.append([*_cells("  never worse", _totals(_smaller(one))), seconds])
    show(format_table(["policy", *header[1:]], rows))
    for one in evaluated:
        if never_worse:
            found = _never_worse(one)
            show(
                f"\n{one.name}, never worse: the default's object kept for "
                f"{found['default_kept']} of {len(one.rows)} modules; compiling twice took "
                f"{found['extra_seconds']:.1f} s more, {found['cpu_ratio']:.2f} times the CPU time"
            )
    for one in evaluated:
        if one.played is not one.of_default:
            rows = [_cells(name, _totals(part)) for name, part in _by_project(one).items()]
            show("\n" + format_table([one.name, *header[1:-1]], rows))


def _cells(name: str, totals: Mapping[str, Any]) -> list[str]:
    return [
        name,
        str(totals["modules"]),
        f"{totals['size_bytes']:,}",
        f"{totals['default_size_bytes']:,}",
        percent(totals["size_bytes"], totals["default_size_bytes"]),
        percent(totals["exec_bytes"], totals["default_exec_bytes"]),
        str(totals["worse_modules"]),
    ]
