"""The experiments of the thesis on tensor graphs, with this project's engine and learners.

    python -m tools.benchmarks.tensor_graph_tables --output runs/graphs --jobs 2

repeats the experiments with model-free agents in section 4.3 of the thesis, on its models and three
more, with one cost table and one set of rules for all methods:

  Figures 4.1, 4.3  what greedy search, TASO's search, ours (regions) and learned policies save:
                    estimated, and measured end to end with OpenVINO and each level of onnxruntime
  Figure 4.4        rewards while policies learn
  Figure 4.5        which figures of a graph correlate with its time
  Figure 4.6        policies that learned with other rewards, on the first model
  Figure 4.11       which rules are applied to which model
  Table 4.2         memory of optimising a model, and of running the result
  generalisation    one policy trained on every second model, used on the others

--output gets
  table.md, table.json   all tables, with the command and the settings that made them
  *.png, *.svg           the pictures
  runs/                  the training runs, as `tfrl train --workdir` keeps them
  searches/, policies/, times/, walks/, memory/   one file for each measurement
If the tool was stopped, run it again to go on.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tfrl_systems.experiments.arguments import (
    add_assignments,
    add_fields,
    read_assignments,
    read_fields,
    whole_number,
)
from tfrl_systems.reporting import Terminal
from tfrl_systems.systems.tensor_graphs.problem import Rewriting
from tools import running
from tools.benchmarks import shared
from tools.benchmarks.tensor_graphs.cases import AGENTS, MODELS, check_models
from tools.benchmarks.tensor_graphs.experiments import Experiments
from tools.benchmarks.tensor_graphs.measurements import Benchmark

_READ_OTHERWISE = ("rewriting", "settings")


def run(options: argparse.Namespace) -> None:
    """Measure what has no record yet; write the tables after each seed and at the end."""
    check_models(options.models)
    rewriting = Rewriting(**read_fields(options, Rewriting))
    rewriting.load_rules()  # raises errors in the rules before anything takes long
    benchmark = Benchmark(
        rewriting=rewriting,
        settings=read_assignments(options.assignments),
        **read_fields(options, Benchmark, _READ_OTHERWISE),
    )
    about = {
        "command": options.command_line,
        "commit": shared.commit(),
        "processors": os.cpu_count(),
        "jobs": options.jobs,
        "seconds": options.seconds,
        "rollouts": options.rollouts,
    }
    with Terminal() as terminal, shared.doing(options.jobs) as do:
        experiments = Experiments(benchmark, options.models, options.agents, terminal)
        experiments.search()
        for seed in range(options.seeds):
            experiments.learn(seed, do, options.other_seeds is None or seed < options.other_seeds)
            experiments.write(about)
            terminal.say(f"{options.output / 'table.md'}: {seed + 1} of {options.seeds} seeds")
        experiments.play_by_chance()
        experiments.measure()
        experiments.write(about)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_fields(parser, Benchmark, _READ_OTHERWISE)
    add_fields(parser, Rewriting)
    parser.add_argument(
        "--models",
        type=lambda text: tuple(text.split(",")),
        default=MODELS,
        metavar="NAMES",
        help="or files, separated by commas; rewards are compared on the first one (default: "
        f"{','.join(MODELS)})",
    )
    parser.add_argument(
        "--agents",
        type=shared.some_of(AGENTS),
        default=AGENTS,
        metavar="NAMES",
        help="to compare, separated by commas; the first one also learns with other rewards, and "
        f"for several models (default: {','.join(AGENTS)})",
    )
    _add_amounts(parser)
    add_assignments(parser, "as for tfrl train tensor_graphs, of fields that all agents have")
    options = parser.parse_args(arguments)
    options.command_line = " ".join(["python -m tools.benchmarks.tensor_graph_tables", *arguments])
    return options


def _add_amounts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seeds", type=whole_number(1), default=5, help="0, 1, …; default: 5 of them"
    )
    parser.add_argument(
        "--other-seeds",
        type=whole_number(0),
        metavar="N",
        help="of the policies for several models, and of those that learn with other rewards; "
        "together they take as long as all others (default: as --seeds)",
    )
    parser.add_argument(
        "--jobs",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="trainings at the same time; what they learn does not depend on it (default: 1)",
    )


def main() -> int:
    """Run the tool; return the exit status."""
    return running.exit_status(run, parse_arguments(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
