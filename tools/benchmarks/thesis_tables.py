"""The experiments of Paul Mayer's thesis, with this project's learners and collection.

    python -m tools.benchmarks.thesis_tables --output runs/thesis --jobs 2

repeats the experiments in chapter 6 of Distributed Deep Reinforcement Learning for
Learn-To-Optimize (Stuttgart, 2023). It reports several seeds, where the thesis reports the best of
three runs. It adds a function whose minimum moves with the free parameter, and baselines to compare
learned policies with.

  Table 6.1         seconds collecting, broadcasting, waiting and training, with k processes
  Tables 6.2, 6.3   errors in the first and in the last tenth of the training, by sampler
  Figures 6.3, 6.4  learning with collection in the same process, and in two others
  quality           learned policies, a constant, random x, a network that was shown the true
                    minima, scipy's solver, and CMA-ES in ten dimensions

--output gets
  table.md, table.json       all tables, with the command and the settings that made them
  thesis.png, thesis.svg     the curves
  runs/                      the training runs, as `tfrl train --workdir` keeps them
  timings/, baselines/       one file for each measurement
If the tool was stopped, run it again to go on.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import sys
from collections.abc import Sequence

from tfrl_systems.experiments.arguments import add_assignments, read_assignments, whole_number
from tfrl_systems.reporting import Terminal
from tools import running
from tools.benchmarks import shared, thesis_baselines, thesis_report
from tools.benchmarks.shared import Record
from tools.benchmarks.thesis_cases import QUALITY, plan
from tools.benchmarks.thesis_measurements import Benchmark, time_collection, train

AGENTS = ("ppo", "reinforce")
# The functions to time, each with the number that --timing-iterations is divided by.
TIMED_FUNCTIONS = {"ackley": 1, "tools.benchmarks.slow_ackley:value": 10}


def run(options: argparse.Namespace) -> None:
    """Measure what has no record yet; write the tables after each seed."""
    short = dict.fromkeys(("samplers", "distributed"), options.short_iterations)
    long = {} if options.iterations is None else {"quality": options.iterations}
    benchmark = Benchmark(options.output, read_assignments(options.assignments), {**short, **long})
    about = {
        "command": options.command_line,
        "commit": shared.commit(),
        "processors": os.cpu_count(),
        "jobs": options.jobs,
    }
    first = options.agents[0]
    with Terminal() as terminal, shared.doing(options.jobs) as do:
        timings = []
        for function, share in TIMED_FUNCTIONS.items():
            number = max(1, options.timing_iterations // share)
            for workers in (0, *options.workers_list):
                timings.append(time_collection(benchmark, first, function, workers, number))
                terminal.say(f"{function}, {workers} workers: timed")
        records: list[Record] = []
        baselines: list[Record] = []
        for seed in range(options.seeds):
            label = f"seed {seed}: "
            tasks = [functools.partial(train, benchmark, one) for one in plan(options.agents, seed)]
            records += shared.followed(do(tasks), len(tasks), terminal, f"{label}training runs")
            tasks = [
                functools.partial(thesis_baselines.measure, benchmark, first, case, name, seed)
                for case in QUALITY
                for name in thesis_baselines.names_of(case)
                if seed == 0 or thesis_baselines.depends_on_chance(name)
            ]
            baselines += shared.followed(do(tasks), len(tasks), terminal, f"{label}baselines")
            thesis_report.write(timings, records, baselines, about, options.output)
            terminal.say(f"{options.output / 'table.md'}: {seed + 1} of {options.seeds} seeds")


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument(
        "--seeds", type=whole_number(1), default=5, help="0, 1, …; default: 5 of them"
    )
    _add_iterations(parser)
    parser.add_argument(
        "--agents",
        type=shared.some_of(AGENTS),
        default=AGENTS,
        metavar="NAMES",
        help="to compare, separated by commas; the first one tries samplers and processes too "
        f"(default: {','.join(AGENTS)})",
    )
    parser.add_argument(
        "--workers-list",
        type=lambda text: tuple(whole_number(1)(one) for one in text.split(",")),
        default=(1, 2, 4, 8),
        metavar="K,K,…",
        help="processes to time the collection with; default: 1,2,4,8",
    )
    parser.add_argument(
        "--jobs",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="training runs at the same time; their errors do not depend on it (default: 1)",
    )
    add_assignments(parser, "as for tfrl train learn_to_optimize, of fields that all agents have")
    options = parser.parse_args(arguments)
    options.command_line = " ".join(["python -m tools.benchmarks.thesis_tables", *arguments])
    return options


def _add_iterations(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--iterations",
        type=whole_number(1),
        metavar="N",
        help="of the runs that show quality; default: those of tfrl train",
    )
    parser.add_argument(
        "--short-iterations",
        type=whole_number(1),
        default=2000,
        metavar="N",
        help="of the runs that compare samplers, and processes with none (default: 2000)",
    )
    parser.add_argument(
        "--timing-iterations", type=whole_number(1), default=300, metavar="N", help="default: 300"
    )


def main() -> int:
    """Run the tool; return the exit status."""
    return running.exit_status(run, parse_arguments(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
