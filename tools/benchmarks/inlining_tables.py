"""Leave-projects-out: how much smaller a learned inlining policy makes code that it never saw.

    python -m tools.benchmarks.inlining_tables --corpus runs/corpus/all --output runs/tables

divides a corpus into folds of whole projects, by their languages and sizes of bitcode alone. For
each fold and seed it learns policies on the other folds as `tfrl train inlining` does, with and
without exploration. After each iteration it takes the policy that training would write then. It
compiles the fold's modules under these policies and the baselines, and links the fold's projects
under the learned ones. So each module is measured once for each seed, under policies that saw
nothing of its project.

--output gets
  table.md, table.json   savings against LLVM's default at -Oz, with the command and the settings
  savings.png, .svg      savings by iteration, as Fig. 2 of the BC-Max paper
  folds/                 one file for each fold and seed: the sizes of all modules
  runs/                  the training runs, as `tfrl train --workdir` keeps them
If the tool was stopped, run it again to go on; compiles that were made come from --cache.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from environments.inlining.collection.collector import Collector
from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.corpus.modules import Corpus
from environments.inlining.exploration.explore import ExplorationConfig
from tfrl_systems import experiments
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.experiments.arguments import (
    add_assignments,
    add_fields,
    read_assignments,
    whole_number,
)
from tfrl_systems.reporting import Reporter, Terminal
from tfrl_systems.settings import Settings
from tfrl_systems.systems.inlining.corpora import corpus_digest, small_modules
from tfrl_systems.systems.inlining.learning import make_corpus_objective
from tfrl_systems.systems.inlining.problem import Evaluation
from tfrl_systems.systems.inlining.workers import make_collector
from tools import running
from tools.benchmarks import inlining_report, shared
from tools.benchmarks.inlining_folds import Benchmark, make_folds, run_fold

# Time limit of a compile; the largest module takes a small part of it under the default.
_TIMEOUT_S = 60.0


def run(options: argparse.Namespace) -> None:
    """Run all folds and seeds; write the table after each seed."""
    with Terminal() as terminal, collecting(options) as collector:
        benchmark, about = make_benchmark(options, {}, collector, terminal)
        _run_all(benchmark, options, about, collector, terminal)


@contextlib.contextmanager
def collecting(options: argparse.Namespace) -> Iterator[Collector]:
    """Give what compiles, with the cache and the workers that the command line names."""
    with (
        contextlib.closing(TrajectoryStore(options.cache)) as store,
        make_collector(
            options.compiler, store, Collect.with_workers(options.workers), _TIMEOUT_S
        ) as collector,
    ):
        yield collector


def make_benchmark(
    options: argparse.Namespace,
    changed: Mapping[str, Any],
    collector: Collector,
    reporter: Reporter,
) -> tuple[Benchmark, dict[str, Any]]:
    """Return what is the same for all folds and seeds, and what to tell about it.

    Args:
      options: the command line.
      changed: settings that differ from those of the command line.
      collector: compiles.
      reporter: receives the progress.
    """
    corpus = Corpus.load(options.corpus)
    chosen = _chosen(options, changed)
    config, agent_config = chosen["loop"], chosen["agent"]
    exploration: ExplorationConfig = chosen["exploration"]
    modules = tuple(small_modules(corpus.modules, options.max_bitcode_bytes, Reporter()))
    decisive = {**dataclasses.asdict(config), **dataclasses.asdict(agent_config)}
    counted = chosen["objective"]
    settings = {
        "compiler": collector.compiler.identity,
        "corpus_sha256": corpus_digest(Corpus(corpus.directory, modules)),
        "folds": options.folds,
        **{name: decisive[name] for name in decisive if name not in ("seed", "iterations")},
        **{f"exploration_{k}": v for k, v in dataclasses.asdict(exploration).items()},
        **dataclasses.asdict(counted),
    }
    left_out = {one.name: one.path.stat().st_size for one in corpus.modules if one not in modules}
    if left_out:
        reporter.say(f"{len(left_out)} modules are too large and left out")
    objective, label_objective = (
        make_corpus_objective(name, collector, Corpus(corpus.directory, modules), reporter)
        for name in (counted.objective, counted.label_objective)
    )
    benchmark = Benchmark(
        modules,
        make_folds(modules, options.folds),
        config,
        agent_config,
        objective,
        label_objective,
        corpus.directory,
        exploration,
        json.loads(json.dumps(settings)),
        options.output,
        Evaluation(corpus=options.corpus, compiler=options.compiler, workers=options.workers),
    )
    about = {
        "command": options.command_line,
        "commit": shared.commit(),
        "left_out": left_out,
    }
    return benchmark, about


def _chosen(options: argparse.Namespace, changed: Mapping[str, Any]) -> Settings:
    """Return the settings of loop, agent and exploration that `tfrl train inlining` would use."""
    settings: dict[str, Any] = {**read_assignments(options.assignments), **changed}
    if options.iterations is not None:
        settings["iterations"] = options.iterations
    return experiments.plan(
        "inlining", agent="bc_max", settings=settings, corpus=options.corpus
    ).settings


def _run_all(
    benchmark: Benchmark,
    options: argparse.Namespace,
    about: Mapping[str, Any],
    collector: Collector,
    reporter: Reporter,
) -> None:
    records: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for fold in range(options.folds):
            records.append(run_fold(benchmark, fold, seed, collector, reporter))
        inlining_report.write(records, about, options.output)
        reporter.say(f"{options.output / 'table.md'}: {seed + 1} of {options.seeds} seeds")


def parse_arguments(
    arguments: Sequence[str],
    description: str | None = __doc__,
    module: str = "inlining_tables",
    num_folds: int = 4,
) -> argparse.Namespace:
    """Parse the command line of a tool that learns in folds.

    Args:
      arguments: the command line, without the program.
      description: for --help.
      module: name of the tool.
      num_folds: default of --folds.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_fields(parser, Evaluation, ["never_worse", "link"])
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument(
        "--folds", type=whole_number(2), default=num_folds, help=f"default: {num_folds}"
    )
    parser.add_argument(
        "--seeds", type=whole_number(1), default=3, help="0, 1, …; default: 3 of them"
    )
    parser.add_argument(
        "--iterations", type=whole_number(1), metavar="N", help="default: that of tfrl train"
    )
    parser.add_argument(
        "--max-bitcode-bytes",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="leave larger modules out of all; 0, the default, for none",
    )
    add_assignments(parser, "as for tfrl train inlining")
    options = parser.parse_args(arguments)
    options.command_line = " ".join([f"python -m tools.benchmarks.{module}", *arguments])
    return options


def main() -> int:
    """Run the tool; return the exit status."""
    return running.exit_status(run, parse_arguments(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
