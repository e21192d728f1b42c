"""Evaluation of inlining policies: how small they make the modules of a corpus."""

from __future__ import annotations

import collections
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from environments.errors import Failure, UserError
from environments.inlining.collection.store import Trajectory, TrajectoryStore
from environments.inlining.compilers.compiler import make_compiler
from environments.inlining.corpus.modules import Corpus, Module
from environments.inlining.heuristics import Default, Policy
from environments.inlining.linking.images import ImageSize
from tfrl_systems.cpu_time import cpu_s
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.reporting import Reporter, format_table, percent
from tfrl_systems.systems.inlining.linking import images_json, link_projects
from tfrl_systems.systems.inlining.policies import load_policy
from tfrl_systems.systems.inlining.problem import Evaluation
from tfrl_systems.systems.inlining.workers import make_collector


class Played(NamedTuple):
    """The compiles of all modules under one policy.

    Attributes:
      compiles: the compiles that succeeded, by name of the module.
      failures: why the other modules failed, by name of the module.
      seconds: wall time.
      cpu_s: CPU time of this process and of the compilers.
    """

    compiles: dict[str, Trajectory]
    failures: dict[str, str]
    seconds: float
    cpu_s: float


class Row(NamedTuple):
    """A module that compiles under a policy and under the default."""

    module: Module
    learned: Trajectory
    default: Trajectory


def evaluate(
    names: Sequence[str], settings: Evaluation, seed: int, reporter: Reporter
) -> dict[str, Any]:
    """Evaluate, and return what `tfrl evaluate inlining --json` prints; see `System.evaluate`."""
    policies = [load_policy(name, seed) for name in names]
    corpus = Corpus.load(settings.corpus)
    modules = corpus.modules
    of_default = _play(settings, modules, Default(), reporter)
    plays = [
        of_default if _is_default(policy) else _play(settings, modules, policy, reporter)
        for policy in policies
    ]
    messages = dict(of_default.failures)
    for played in plays:
        messages |= played.failures
    failures = dict(sorted(messages.items()))
    for message in failures.values():
        reporter.say(f"not compiled: {message}")
    if not any(played.compiles.keys() & of_default.compiles.keys() for played in plays):
        raise UserError(
            f"{settings.corpus}: expected modules that compile, found that all {len(modules)} "
            f"failed ({next(iter(failures.values()))})"
        )
    described = [
        _describe(name, played, of_default, modules, settings.never_worse)
        for name, played in zip(names, plays, strict=True)
    ]
    if settings.link:
        compiled = [module for module in modules if module.name not in failures]
        _say_of_samples(corpus, reporter)
        default_images = _link(settings, compiled, Default(), reporter)
        for entry, policy in zip(described, policies, strict=True):
            images = default_images
            if not _is_default(policy):
                images = _link(settings, compiled, policy, reporter)
            entry["images"] = images_json(images, default_images)
    return {
        "compiler": make_compiler(settings.compiler).identity,
        "corpus": str(settings.corpus),
        "policies": described,
        "failures": [{"module": name, "error": message} for name, message in failures.items()],
    }


def _say_of_samples(corpus: Corpus, reporter: Reporter) -> None:
    for project, modules in corpus.projects.items():
        num_sources = corpus.num_sources.get(project, 0)
        if len(modules) < num_sources:
            reporter.say(
                f"{project}: linked from {len(modules)} of {num_sources} sources; more of them "
                "would share functions, and so save less"
            )


def _is_default(policy: Policy) -> bool:
    return policy.fingerprint == Default.fingerprint


def _link(
    settings: Evaluation, modules: Sequence[Module], policy: Policy, reporter: Reporter
) -> dict[str, ImageSize]:
    collect = Collect.with_workers(settings.workers)
    with make_collector(settings.compiler, TrajectoryStore(), collect) as collector:
        progress = reporter.task(f"{policy.name}, to link", len(modules))
        return link_projects(collector, modules, policy, progress, reporter.say)


def _play(
    settings: Evaluation, modules: Sequence[Module], policy: Policy, reporter: Reporter
) -> Played:
    # To measure what compiling twice costs, both compiles must be made, so the cache is not used.
    store = TrajectoryStore(None if settings.never_worse else settings.cache)
    started_s, started_cpu_s = time.monotonic(), cpu_s()
    collect = Collect.with_workers(settings.workers)
    with make_collector(settings.compiler, store, collect) as collector:
        progress = reporter.task(policy.name, len(modules))
        if _is_default(policy):
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


def _describe(
    name: str, played: Played, of_default: Played, modules: Sequence[Module], never_worse: bool
) -> dict[str, Any]:
    """Return what --json shows of one policy beside the default."""
    rows = [
        Row(module, played.compiles[module.name], of_default.compiles[module.name])
        for module in modules
        if module.name in played.compiles and module.name in of_default.compiles
    ]
    of_project = collections.defaultdict(list)
    for row in rows:
        of_project[row.module.project].append(row)
    described = {
        "policy": name,
        "is_default": played is of_default,
        **_totals(rows),
        "seconds": played.seconds,
        "cpu_seconds": played.cpu_s,
        "projects": [
            {"project": project, **_totals(of_project[project])} for project in sorted(of_project)
        ],
        "per_module": [
            {
                "module": module.name,
                "size_bytes": learned.size.text_bytes,
                "default_size_bytes": default.size.text_bytes,
                "exec_bytes": learned.size.exec_bytes,
                "default_exec_bytes": default.size.exec_bytes,
                "decisions": learned.decisions.tolist(),
            }
            for module, learned, default in rows
        ],
    }
    if never_worse:
        described["never_worse"] = _never_worse(rows, played, of_default)
    return described


def _totals(rows: Sequence[Row]) -> dict[str, Any]:
    size = sum(row.learned.size.text_bytes for row in rows)
    default = sum(row.default.size.text_bytes for row in rows)
    return {
        "modules": len(rows),
        "size_bytes": size,
        "default_size_bytes": default,
        "reduction_percent": 100 * (1 - size / default) if default else 0.0,
        "exec_bytes": sum(row.learned.size.exec_bytes for row in rows),
        "default_exec_bytes": sum(row.default.size.exec_bytes for row in rows),
        "worse_modules": sum(_is_worse(row) for row in rows),
    }


def _is_worse(row: Row) -> bool:
    return row.learned.size.text_bytes > row.default.size.text_bytes


def _never_worse(rows: Sequence[Row], played: Played, of_default: Played) -> dict[str, Any]:
    """Return the sizes if the smaller object is kept, and what the second compile costs."""
    smaller = [row._replace(learned=row.default) if _is_worse(row) else row for row in rows]
    totals = _totals(smaller)
    return {
        **{name: totals[name] for name in ("size_bytes", "exec_bytes", "reduction_percent")},
        "default_kept": sum(_is_worse(row) for row in rows),
        "extra_seconds": of_default.seconds,
        "cpu_ratio": (played.cpu_s + of_default.cpu_s) / of_default.cpu_s,
    }


def size_tables(evaluation: Mapping[str, Any]) -> str:
    """Format the sizes of all policies, then those of each policy by project and by image."""
    header = ["", "modules", "bytes", "default", "change", "exec", "worse", "seconds"]
    rows, parts = [], []
    for policy in evaluation["policies"]:
        rows.append([*_size_cells(policy["policy"], policy), f"{policy['seconds']:.1f}"])
        if "never_worse" in policy:
            better = policy["never_worse"]
            seconds = f"{policy['seconds'] + better['extra_seconds']:.1f}"
            totals = {**policy, **better, "worse_modules": 0}
            rows.append([*_size_cells("  never worse", totals), seconds])
            parts.append(
                f"{policy['policy']}, never worse: the default's object kept for "
                f"{better['default_kept']} of {policy['modules']} modules; compiling twice took "
                f"{better['extra_seconds']:.1f} s more, {better['cpu_ratio']:.2f} times the CPU "
                "time"
            )
    for policy in evaluation["policies"]:
        if policy["is_default"]:
            continue
        projects = [_size_cells(project["project"], project) for project in policy["projects"]]
        parts.append(format_table([policy["policy"], *header[1:-1]], projects))
        if policy.get("images"):
            parts.append(_image_table(policy["policy"], policy["images"]))
    return "\n\n".join([format_table(["policy", *header[1:]], rows), *parts])


def _image_table(policy: str, images: Sequence[Mapping[str, Any]]) -> str:
    """Format by how much linked images differ from the default's."""
    parts = ("text", "unwind", "rodata", "file")
    rows, columns = [], []
    for image in images:
        sizes = [(image[f"{part}_bytes"], image[f"default_{part}_bytes"]) for part in parts]
        loaded = tuple(map(sum, zip(*sizes[:3], strict=True)))
        changes = [size / default - 1 if default else 0.0 for size, default in (*sizes, loaded)]
        columns.append(changes)
        rows.append([image["project"], *(f"{change:+.2%}" for change in changes)])
    means = [statistics.fmean(column) for column in zip(*columns, strict=True)]
    rows.append(["(mean)", *(f"{mean:+.2%}" for mean in means)])
    return format_table([f"{policy}, linked", *parts, "text+unwind+rodata"], rows)


def _size_cells(name: str, totals: Mapping[str, Any]) -> list[str]:
    return [
        name,
        str(totals["modules"]),
        f"{totals['size_bytes']:,}",
        f"{totals['default_size_bytes']:,}",
        percent(totals["size_bytes"], totals["default_size_bytes"]),
        percent(totals["exec_bytes"], totals["default_exec_bytes"]),
        str(totals["worse_modules"]),
    ]
