"""What holds an inlining policy together over longer training: each part of it left out in turn.

    python -m tools.benchmarks.inlining_causes --corpus runs/corpus/all --output runs/causes

learns in folds of whole projects as inlining_tables does, once with the settings as they are and
once for each part with this part changed. After each iteration it compiles the held-out projects
under the policy that was fitted, and under the one that training would write. --output gets
table.md, table.json and the records; run the tool again to go on.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from environments.inlining.collection.collector import Collector
from environments.inlining.collection.store import Trajectory
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Default, Policy
from tfrl_systems.reporting import Reporter, Terminal
from tools import running
from tools.benchmarks import shared
from tools.benchmarks.inlining_folds import Benchmark, learn
from tools.benchmarks.inlining_tables import collecting, make_benchmark, parse_arguments

# Name of the line -> the settings that differ.
PARTS: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "margin 0 instead of judged ones": {"margins": (0.0,), "max_loss_percent": 1000.0},
    "single changes alone": {"joint_rounds": 0},
    "judged by objects": {"objective": "object"},
    "labels count as the object does": {"label_objective": "object"},
    "labels count as the image does": {"label_objective": "image"},
    "departs outside the scope too": {"scoped": False},
    "no imitation of best trajectories": {"imitation": False},
    "no labels of single changes": {"advantage": False},
}
_WRITTEN, _FITTED = "written", "fitted"


def run(options: argparse.Namespace) -> None:
    """Learn with each part left out, in all folds and with all seeds; write the table each time."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    with Terminal() as terminal, collecting(options) as collector:
        for name, changed in PARTS.items():
            benchmark, about = make_benchmark(options, changed, collector, terminal)
            found[name] = [
                _record(benchmark, name, fold, seed, collector, terminal)
                for seed in range(options.seeds)
                for fold in range(options.folds)
            ]
            table = {**about, "lines": [_line(*one) for one in found.items()]}
            shared.keep(options.output / "table.json", table)
            (options.output / "table.md").write_text(to_markdown(table), encoding="utf-8")
            terminal.say(f"{options.output / 'table.md'}: {len(found)} of {len(PARTS)} lines")


def _record(
    benchmark: Benchmark, name: str, fold: int, seed: int, collector: Collector, reporter: Reporter
) -> Mapping[str, Any]:
    """Return the savings of one line in one fold: by kind, iteration and held-out project."""
    part = name.replace(" ", "-")
    path = benchmark.output / "folds" / f"{part}-{fold + 1}-seed-{seed}.json"
    settings = {**benchmark.settings, "iterations": benchmark.config.iterations}

    def make() -> dict[str, Any]:
        reporter.say(f"{name}, fold {fold + 1}, seed {seed}")
        learned = learn(benchmark.in_directory(part), fold, seed, "learned", collector, reporter)
        _, held_out = benchmark.divide(fold)
        of_default = _costs(benchmark, held_out, Default(), collector, reporter)
        return {
            kind: [
                saving_by_project(
                    _costs(benchmark, held_out, policy, collector, reporter), of_default
                )
                for policy in policies
            ]
            for kind, policies in ((_WRITTEN, learned.written), (_FITTED, learned.fitted))
        }

    return shared.kept(path, settings, make)


def _costs(
    benchmark: Benchmark,
    modules: Sequence[Module],
    policy: Policy,
    collector: Collector,
    reporter: Reporter,
) -> dict[str, dict[str, float]]:
    """Return what the C++ modules cost under a policy, by project and module."""
    played = collector.play(modules, policy, reporter.task(policy.name, len(modules)))
    found: dict[str, dict[str, float]] = {}
    for module, one in zip(modules, played, strict=True):
        if isinstance(one, Trajectory) and module.language == "c++":
            cost = benchmark.objective.cost(module.project, one.size)
            found.setdefault(module.project, {})[module.name] = cost
    return found


def saving_by_project(
    costs: Mapping[str, Mapping[str, float]], of_default: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Return by how much each project's modules cost less than by default, in percent.

    Args:
      costs: by project and module; modules that are missing in one of both do not count.
      of_default: the same under the default.
    """
    found = {}
    for project, modules in costs.items():
        both = modules.keys() & of_default.get(project, {}).keys()
        default = sum(of_default[project][name] for name in both)
        if default:
            found[project] = 100 * (1 - sum(modules[name] for name in both) / default)
    return found


def _line(name: str, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean saving after each iteration, over projects and seeds, and the least."""
    number = range(len(records[0][_WRITTEN]))
    savings = {
        kind: [[value for one in records for value in one[kind][k].values()] for k in number]
        for kind in (_WRITTEN, _FITTED)
    }
    return {
        "part": name,
        **{kind: [statistics.fmean(values) for values in savings[kind]] for kind in savings},
        "least": [min(values) for values in savings[_WRITTEN]],
    }


def to_markdown(table: Mapping[str, Any]) -> str:
    """Format the table as Markdown."""
    lines = table["lines"]
    numbers = [str(k + 1) for k in range(len(lines[0][_WRITTEN]))]
    header = ["", *(f"fitted in {k}" for k in numbers), "written in the end", "its worst project"]
    rows = [
        [
            line["part"],
            *(f"{value:.2f}" for value in line[_FITTED]),
            f"{line[_WRITTEN][-1]:.2f}",
            f"{line['least'][-1]:.2f}",
        ]
        for line in lines
    ]
    return (
        "Percent saved on held-out C++ projects (the mean over projects), by what their objects "
        "are worth in the image.\n\n" + shared.markdown_table(header, rows) + "\n\n"
        f"- Made by `{table['command']}` at commit {table['commit']}.\n"
    )


def main() -> int:
    """Run the tool; return the exit status."""
    options = parse_arguments(sys.argv[1:], __doc__, "inlining_causes", 3)
    return running.exit_status(run, options)


if __name__ == "__main__":
    sys.exit(main())
