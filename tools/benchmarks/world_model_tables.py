"""World models beside model-free agents, at equal real steps and where evaluations are dear.

    python -m tools.benchmarks.world_model_tables --output runs/dreams

makes the tables of the thesis's section 4.3.3 with this project's engine and learners:

  graphs        what policies save that learned from the same number of real steps, with PPO and in
                dreams, beside PPO in the same time, chance and a search (figure 4.7)
  temperatures  the thesis's preset at several temperatures: dreamed and real (table 4.3)
  parts         the world model without each of its parts, and the thesis's preset
  measured      PPO and the world model, where some rewards are measured
  landscape     shifted Ackley from a number of evaluations, which the function counts

Costs are estimated analytically and the same on every machine, except for `measured`. --output
gets table.md, one file for each measurement, and the training runs. If the tool was stopped, run it
again to go on.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfrl_systems.agents.table import AGENTS
from tfrl_systems.experiments.arguments import whole_number
from tfrl_systems.reporting import Terminal
from tools import running
from tools.benchmarks import shared
from tools.benchmarks.world_models import tables
from tools.benchmarks.world_models.landscapes import Few
from tools.benchmarks.world_models.measured import Measured
from tools.benchmarks.world_models.rewriting import (
    CHANCE,
    STEPS_PER_ITERATION,
    Case,
    Play,
    Search,
    Settings,
)

_TEMPERATURES = (0.1, 0.5, 0.75, 1.0, 1.2, 1.5, 1.75, 2.0, 2.5, 3.0)
_SAME_TIME = "PPO for as long"
_AGENTS: Mapping[str, tuple[str, Settings]] = {
    CHANCE: (CHANCE, ()),
    "PPO": ("ppo", ()),
    "world model": ("world_model", ()),
    "thesis": ("world_model", (("preset", "thesis"),)),
}
_PARTS: Mapping[str, Settings] = {
    "all parts": (),
    "one member": (("num_members", 1),),
    "disagreement is free": (("disagreement", 0.0),),
    "dreams of whole episodes": (("dream_steps", 0), ("dream_from_states", False)),
    "rewards as numbers": (("two_hot_rewards", False),),
    "no real experience": (("real_share", 0.0),),
    "thesis": (("preset", "thesis"),),
}
_MEASURED: Settings = (("measure_every", 20),)
# Real steps between two fits of the model, in units of an iteration's. Fits are the dear part of
# the sweep, and the thesis's model learns from steps of chance, however many come at once.
_STEPS_BETWEEN_FITS = 3

Doing = Callable[[Sequence[shared.Task], str], list[shared.Record]]
"""Does tasks and returns their records; the text says what they are."""


def run(options: argparse.Namespace) -> None:
    """Measure what has no record yet, and write the tables."""
    with Terminal() as terminal, shared.doing(options.jobs) as do:

        def doing(tasks: Sequence[shared.Task], label: str) -> list[shared.Record]:
            return list(shared.followed(do(tasks), len(tasks), terminal, label))

        made = [_TABLES[name](options, doing) for name in options.tables]
    text = "\n\n".join([f"`{options.command_line}` at {shared.commit()}", *made]) + "\n"
    (options.output / "table.md").write_text(text, encoding="utf-8")
    print(text)


def _graphs(options: argparse.Namespace, doing: Doing) -> str:
    asked = [label for label in options.agents if label != _SAME_TIME]
    cases = [
        Case(label, agent, model, seed, options.iterations, settings)
        for model in options.models
        for label, (agent, settings) in ((one, _AGENTS[one]) for one in asked)
        for seed in range(options.seeds)
    ]
    found = doing([Play(case, options.output, options.episodes) for case in cases], "graphs")
    if _SAME_TIME in options.agents:
        longer = _at_equal_time(found, options.iterations)
        found += doing([Play(one, options.output, options.episodes) for one in longer], "longer")
    searches = [Search(one, options.seconds, "analytic", options.output) for one in options.models]
    return tables.of_graphs(found, doing(searches, "regions"))


def _at_equal_time(found: Sequence[shared.Record], iterations: int) -> list[Case]:
    """Return PPO with as many iterations as it has time for while the world model learns."""
    by_label = {(one["label"], one["model"], one["seed"]): one["seconds"] for one in found}
    cases = []
    for (label, model, seed), seconds in by_label.items():
        if label == "world model" and ("PPO", model, seed) in by_label:
            times = seconds / by_label["PPO", model, seed]
            cases.append(Case(_SAME_TIME, "ppo", model, seed, max(round(iterations * times), 1)))
    return cases


def _temperatures(options: argparse.Namespace, doing: Doing) -> str:
    iterations = -(-options.iterations // _STEPS_BETWEEN_FITS)
    tasks = [
        Play(
            Case(
                f"{one:g}",
                "world_model",
                options.models[0],
                seed,
                iterations,
                (
                    ("preset", "thesis"),
                    ("num_chunks", 4 * _STEPS_BETWEEN_FITS),
                    ("temperature", one),
                ),
            ),
            options.output / "temperatures",
            options.episodes,
        )
        for one in options.temperatures
        for seed in range(options.seeds)
    ]
    return tables.of_temperatures(doing(tasks, "temperatures"))


def _parts(options: argparse.Namespace, doing: Doing) -> str:
    tasks = [
        Play(
            Case(label, "world_model", model, seed, options.iterations, settings),
            options.output / "parts",
            options.episodes,
        )
        for label, settings in _PARTS.items()
        for model in options.models
        for seed in range(options.seeds)
    ]
    return tables.of_parts(doing(tasks, "parts"))


def _measured(options: argparse.Namespace, doing: Doing) -> str:
    cases = [
        Case(label, agent, options.models[0], seed, options.iterations, _MEASURED, "onnxruntime")
        for label, agent in ((CHANCE, CHANCE), ("PPO", "ppo"), ("world model", "world_model"))
        for seed in range(options.seeds)
    ]
    return tables.of_measured(doing([Measured(case, options.output) for case in cases], "measured"))


def _landscape(options: argparse.Namespace, doing: Doing) -> str:
    few = [
        Few(agent, seed, options.rounds, (), options.output)
        for agent in AGENTS
        for seed in range(options.seeds)
    ]
    return tables.of_landscape(doing(few, "landscape"))


_TABLES: Mapping[str, Callable[[argparse.Namespace, Doing], str]] = {
    "graphs": _graphs,
    "temperatures": _temperatures,
    "parts": _parts,
    "measured": _measured,
    "landscape": _landscape,
}


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def add(name: str, parse: Callable[[str], Any], default: Any, metavar: str, text: str) -> None:
        parser.add_argument(name, type=parse, default=default, metavar=metavar, help=text)

    def numbers(text: str) -> tuple[float, ...]:
        return tuple(map(float, text.split(",")))

    def names(text: str) -> tuple[str, ...]:
        return tuple(text.split(","))

    parser.add_argument("--output", type=pathlib.Path, required=True, metavar="DIR")
    labels = (*_AGENTS, _SAME_TIME)
    add("--tables", shared.some_of(tuple(_TABLES)), tuple(_TABLES), "NAMES", "default: all")
    add("--models", names, ("bert-tiny",), "NAMES", "of graphs and parts (default: bert-tiny)")
    add("--agents", shared.some_of(labels), labels, "NAMES", f"of graphs: {', '.join(labels)}")
    add("--seeds", whole_number(1), 5, "N", "0, 1, …; default: 5")
    add("--iterations", whole_number(1), 12, "N", f"of {STEPS_PER_ITERATION} real steps (12)")
    add("--rounds", whole_number(1), 40, "N", "of 480 evaluations of the landscape (40)")
    add("--temperatures", numbers, _TEMPERATURES, "NUMBERS", "default: the thesis's ten")
    add("--episodes", whole_number(2), 64, "N", "of each policy, the first its likeliest (64)")
    add("--seconds", float, 60.0, "N", "of the search (60)")
    add("--jobs", whole_number(1), 1, "N", "measurements at a time (1)")
    options = parser.parse_args(arguments)
    options.command_line = " ".join(["python -m tools.benchmarks.world_model_tables", *arguments])
    return options


def main() -> int:
    """Run the tool; return the exit status."""
    return running.exit_status(run, parse_arguments(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
