"""World models beside model-free agents, at equal real steps and where evaluations are dear.

    python -m tools.benchmarks.world_model_tables --output runs/dreams

makes the tables of the thesis's section 4.3.3 with this project's engine and learners:

  graphs        what policies save that learned from the same number of real steps, with PPO and in
                dreams, beside chance and a search (figure 4.7)
  temperatures  the thesis's preset at several temperatures: predicted and real (table 4.3)
  landscape     shifted Ackley from a number of evaluations, which the function counts

Costs are estimated analytically, so they are the same on every machine. --output gets table.md, one
file for each measurement, and the training runs. If the tool was stopped, run it again to go on.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
from collections.abc import Iterable, Sequence

from tfrl_systems.experiments.arguments import whole_number
from tfrl_systems.experiments.reporting import Terminal
from tools import running
from tools.benchmarks import shared
from tools.benchmarks.world_models.landscapes import Few
from tools.benchmarks.world_models.rewriting import (
    STEPS_PER_ITERATION,
    Case,
    Play,
    Search,
    Settings,
)

TABLES = ("graphs", "temperatures", "landscape")
_MODELS = ("bert-tiny",)
_TEMPERATURES = (0.1, 0.5, 0.75, 1.0, 1.2, 1.5, 1.75, 2.0, 2.5, 3.0)
_AGENTS = {"chance": "chance", "PPO": "ppo", "world model": "world_model"}


def run(options: argparse.Namespace) -> None:
    """Measure what has no record yet, and write the tables."""
    made: list[str] = []
    with Terminal() as terminal, shared.doing(options.jobs) as do:

        def done(tasks: Sequence[shared.Task], label: str) -> list[shared.Record]:
            return list(shared.followed(do(tasks), len(tasks), terminal, label))

        if "graphs" in options.tables:
            cases = [
                Case(label, agent, model, seed, options.iterations)
                for model in options.models
                for label, agent in _AGENTS.items()
                for seed in range(options.seeds)
            ]
            found = done([Play(case, options.output) for case in cases], "graphs")
            searches = done(
                [
                    Search(one, options.seconds, "analytic", options.output)
                    for one in options.models
                ],
                "regions",
            )
            made.append(_graphs(found, searches, options))
        if "temperatures" in options.tables:
            tasks = [
                Play(_at(one, options.models[0], seed, options.iterations), options.output)
                for one in options.temperatures
                for seed in range(options.seeds)
            ]
            made.append(_temperatures(done(tasks, "temperatures"), options))
        if "landscape" in options.tables:
            few = [
                Few(agent, seed, options.rounds, (), options.output)
                for agent in ("ppo", "world_model")
                for seed in range(options.seeds)
            ]
            made.append(_landscape(done(few, "landscape")))
    text = "\n\n".join([f"`{options.command_line}` at {shared.commit()}", *made]) + "\n"
    (options.output / "table.md").write_text(text, encoding="utf-8")
    print(text)


def _at(temperature: float, model: str, seed: int, iterations: int) -> Case:
    settings: Settings = (("preset", "thesis"), ("temperature", temperature))
    return Case(f"thesis-{temperature:g}", "world_model", model, seed, iterations, settings)


def _graphs(
    found: Sequence[shared.Record],
    searches: Sequence[shared.Record],
    options: argparse.Namespace,
) -> str:
    rows = []
    for model in options.models:
        for label in _AGENTS:
            of_it = [one for one in found if (one["model"], one["label"]) == (model, label)]
            greedy = [one["greedy"] for one in of_it if one["greedy"] is not None]
            rows.append(
                [
                    f"{model}, {label}",
                    str(of_it[0]["environment_steps"]),
                    _saved(greedy) if greedy else "",
                    _saved([one["mean"] for one in of_it]),
                    _saved([one["best"] for one in of_it]),
                    f"{statistics.fmean(one['seconds'] for one in of_it):.0f}",
                ]
            )
        rows += [
            [f"{model}, regions", f"{one['expansions']} expansions", "", "", *_searched(one)]
            for one in searches
            if one["model"] == model
        ]
    header = ["", "real steps", "likeliest actions", "mean of 64", "best of 64", "s"]
    return shared.markdown_table(header, rows)


def _searched(one: shared.Record) -> list[str]:
    return [_saved([one["best"]]), f"{one['seconds']:.0f}"]


def _temperatures(found: Sequence[shared.Record], options: argparse.Namespace) -> str:
    rows = []
    for one in options.temperatures:
        of_it = [record for record in found if record["label"] == f"thesis-{one:g}"]
        predictions = [record["world_model"]["prediction"] for record in of_it]
        rows.append(
            [
                f"{one:g}",
                f"{statistics.fmean(p['predicted_return'] for p in predictions):.2f}",
                f"{statistics.fmean(p['real_return'] for p in predictions):.2f}",
                _saved([record["greedy"] for record in of_it]),
                _saved([record["mean"] for record in of_it]),
            ]
        )
    header = ["τ", "predicted return", "real return", "likeliest actions", "mean of 64"]
    return shared.markdown_table(header, rows)


def _landscape(found: Sequence[shared.Record]) -> str:
    rows = []
    for agent in ("ppo", "world_model"):
        of_it = [one for one in found if one["agent"] == agent]
        errors = sorted(one["mse"] for one in of_it)
        rows.append(
            [
                agent,
                str(max(one["evaluations"] for one in of_it)),
                f"{statistics.median(errors):.3g} ({errors[0]:.3g}..{errors[-1]:.3g})",
                f"{statistics.fmean(one['seconds'] for one in of_it):.0f}",
            ]
        )
    return shared.markdown_table(["shifted Ackley", "evaluations", "MSE", "s"], rows)


def _saved(costs: Iterable[float]) -> str:
    """Return the median saving in percent, and the range if there are several."""
    savings = sorted(100 * (1 - cost) for cost in costs)
    median = f"-{statistics.median(savings):.2f}%"
    return median if len(savings) == 1 else f"{median} (-{savings[0]:.2f}..-{savings[-1]:.2f})"


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument(
        "--tables",
        type=shared.some_of(TABLES),
        default=TABLES,
        metavar="NAMES",
        help="by default all",
    )
    parser.add_argument(
        "--models",
        type=lambda text: tuple(text.split(",")),
        default=_MODELS,
        metavar="NAMES",
        help=f"default: {','.join(_MODELS)}",
    )
    parser.add_argument("--seeds", type=whole_number(1), default=5, help="0, 1, …; default: 5")
    parser.add_argument(
        "--iterations",
        type=whole_number(1),
        default=12,
        metavar="N",
        help=f"of {STEPS_PER_ITERATION} real steps on graphs (default: 12)",
    )
    parser.add_argument(
        "--rounds",
        type=whole_number(1),
        default=40,
        metavar="N",
        help="of 480 evaluations of the landscape (default: 40)",
    )
    parser.add_argument(
        "--temperatures",
        type=lambda text: tuple(map(float, text.split(","))),
        default=_TEMPERATURES,
        metavar="NUMBERS",
        help="default: the thesis's ten",
    )
    parser.add_argument("--seconds", type=float, default=60.0, metavar="N", help="of the search")
    parser.add_argument("--jobs", type=whole_number(1), default=1, metavar="N")
    options = parser.parse_args(arguments)
    options.command_line = " ".join(["python -m tools.benchmarks.world_model_tables", *arguments])
    return options


def main() -> int:
    """Run the tool; return the exit status."""
    return running.exit_status(run, parse_arguments(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
