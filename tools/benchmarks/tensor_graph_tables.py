"""The experiments of the thesis on tensor graphs, with this project's engine and learners.

    python -m tools.benchmarks.tensor_graph_tables --output runs/graphs --jobs 2

repeats what section 4.3 of the thesis reports of model-free agents, on its models and three more,
with one cost table and one set of rules for all methods:

  Figures 4.1, 4.3  what greedy search, TASO's search, ours (regions) and learned policies save, as
                    estimated, and measured end to end at each level of onnxruntime, and OpenVINO's
  Figure 4.4        rewards while policies learn
  Figure 4.5        what goes with how long a graph takes
  Figure 4.6        policies that learned with other rewards, on the first model
  Figure 4.11       which rules are applied to which model
  Table 4.2         memory: of optimising, and of running what came out
  generalisation    one policy for every second model, used on those between them

--output gets
  table.md, table.json   all of it, and what it was made with
  *.png, *.svg           the pictures
  runs/                  the training runs, as `tfrl train --workdir` keeps them
  searches/, policies/, times/, walks/, memory/   one file for each measurement
Run again, it goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from collections.abc import Sequence

from environments.errors import UserError
from environments.tensor_graphs import rules
from tfrl_systems.cli import options as cli_options
from tfrl_systems.cli.console import Progress, UsageError
from tfrl_systems.cli.optimize import add_problem, add_rollouts, positive_number
from tools.benchmarks import shared
from tools.benchmarks.tensor_graphs.cases import AGENTS, MODELS, check_models
from tools.benchmarks.tensor_graphs.experiments import Experiments
from tools.benchmarks.tensor_graphs.measurements import Benchmark


def run(options: argparse.Namespace) -> None:
    """Measures what is not measured yet; the tables are written after each seed, and at the end."""
    check_models(options.models)
    rules.load(options.rules)  # what is wrong with them is said before anything takes long
    benchmark = Benchmark(
        output=options.output,
        rules=options.rules,
        objective=options.objective,
        dimensions=tuple(sorted(options.dimensions)),
        assignments=tuple(options.assignments),
        iterations=options.iterations,
        seconds=options.seconds,
        rollouts=options.rollouts,
        measure_seconds=options.measure_seconds,
    )
    about = {
        "command": options.command_line,
        "commit": shared.commit(),
        "processors": os.cpu_count(),
        "jobs": options.jobs,
        "seconds": options.seconds,
        "rollouts": options.rollouts,
    }
    with Progress() as progress, shared.doing(options.jobs) as do:
        experiments = Experiments(benchmark, options.models, options.agents, progress)
        experiments.search()
        for seed in range(options.seeds):
            experiments.learn(seed, do, options.other_seeds is None or seed < options.other_seeds)
            experiments.write(about)
            progress.say(f"{options.output / 'table.md'}: {seed + 1} of {options.seeds} seeds")
        experiments.play_by_chance()
        experiments.measure()
        experiments.write(about)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="DIR")
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
        type=_agents,
        default=AGENTS,
        metavar="NAMES",
        help="to compare, separated by commas; the first one also learns with other rewards, and "
        f"for several models (default: {','.join(AGENTS)})",
    )
    _add_trainings(parser)
    _add_budgets(parser)
    add_rollouts(parser)
    add_problem(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="assignments",
        metavar="FIELD=VALUE",
        help="as for tfrl train tensor_graphs, of fields that all agents have",
    )
    options = parser.parse_args(arguments)
    options.command_line = " ".join(["python -m tools.benchmarks.tensor_graph_tables", *arguments])
    return options


def _add_trainings(parser: argparse.ArgumentParser) -> None:
    number = cli_options.whole_number
    parser.add_argument("--seeds", type=number(1), default=5, help="0, 1, …; default: 5 of them")
    parser.add_argument(
        "--other-seeds",
        type=number(0),
        metavar="N",
        help="of the policies for several models, and of those that learn with other rewards; "
        "together they take as long as all others (default: as --seeds)",
    )
    parser.add_argument(
        "--iterations",
        type=number(1),
        metavar="N",
        help="for each model of a training; default: those of tfrl train",
    )


def _add_budgets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        type=positive_number,
        default=60.0,
        metavar="N",
        help="for each search, and for what a policy does in its place (default: 60)",
    )
    parser.add_argument(
        "--measure-seconds",
        type=positive_number,
        default=10.0,
        metavar="N",
        help="for two models end to end (default: 10)",
    )
    parser.add_argument(
        "--jobs",
        type=cli_options.whole_number(1),
        default=1,
        metavar="N",
        help="trainings at the same time; what they learn does not depend on it (default: 1)",
    )


def _agents(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(AGENTS):
        raise argparse.ArgumentTypeError(f"expected some of {','.join(AGENTS)}, found {text!r}")
    return names


def main() -> int:
    """Runs the tool; mistakes of the user end in one line."""
    try:
        run(parse_arguments(sys.argv[1:]))
    except (UserError, UsageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: stopped; run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
