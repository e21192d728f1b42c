"""The verb `tfrl train`, which learns a policy."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from typing import Any

from tfrl_systems import experiments
from tfrl_systems.agents.table import AGENTS
from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import show_result
from tfrl_systems.experiments.arguments import (
    add_assignments,
    add_fields,
    path_of_file,
    read_assignments,
    read_fields,
    whole_number,
)
from tfrl_systems.experiments.records import find_system, summary_of
from tfrl_systems.reporting import Terminal
from tfrl_systems.settings import describe
from tfrl_systems.training.system import System

_DESCRIPTION = """\
{purpose}
--workdir gets
  policy/        what was learned: a TensorFlow SavedModel, and arrays for NumPy alone
  tensorboard/   curves over the iterations: tensorboard --logdir DIR
  checkpoints/   what a resumed run needs
  result.json    the outcome, with all that is needed to get it again
A run that was interrupted goes on with --resume and ends as if it had not been.
"""


def add_parser(subparsers: Any) -> None:
    """Add `train` to the verbs."""
    shared.add_system_verb(subparsers, "train", "learn a policy", _fill, run)


def _fill(name: str, parser: shared.LazyParser) -> None:
    system = find_system(name)
    purpose = system.examples.get("train", f"Learns a policy for {name}: {summary_of(name)}.\n")
    parser.description = _DESCRIPTION.format(purpose=purpose)
    parser.add_argument("--agent", choices=tuple(AGENTS), required=True, help="how to learn")
    add_fields(parser, system.problem_type)
    parser.add_argument(
        "--workdir", type=path_of_file, required=True, metavar="DIR", help="where the run is kept"
    )
    parser.add_argument(
        "--iterations",
        type=whole_number(1),
        metavar="N",
        help="rounds of collecting and learning; the same as --set iterations=N",
    )
    shared.add_seed(parser, "everything")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --workdir")
    add_assignments(parser, "change a field; see below")
    shared.add_collect(parser)
    shared.add_json(parser)
    parser.help_fn = functools.partial(_complete_help, system)


def _complete_help(system: System, parser: shared.LazyParser, words: Sequence[str]) -> None:
    """Add the fields of the agent that the command line names."""
    chooser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    chooser.add_argument("--agent", nargs="?")
    agent = chooser.parse_known_args(words)[0].agent
    if agent not in AGENTS or system.why_not(agent):
        agents = ",".join(agent for agent in AGENTS if not system.why_not(agent))
        parser.epilog = (
            f"fields for --set, with their defaults: tfrl train {system.name} --agent "
            f"{{{agents}}} --help"
        )
        return
    names = ", ".join(system.agent(agent).presets)
    presets = f"  preset=NAME  sets several of them at once: {names}\n" if names else ""
    fields = describe(system.settings(agent, None), system.unused_settings)
    parser.epilog = (
        f"with --agent {agent}: fields for --set, with their defaults:\n{presets}{fields}"
    )


def run(name: str, options: argparse.Namespace) -> int:
    """Train a policy as the command line says."""
    system = find_system(name)
    with Terminal() as terminal:
        trained = experiments.train(
            name,
            agent=options.agent,
            workdir=options.workdir,
            seed=options.seed,
            iterations=options.iterations,
            settings=read_assignments(options.assignments),
            collect=shared.collect_of(options),
            resume=options.resume,
            reporter=terminal,
            **read_fields(options, system.problem_type),
        )
    show_result(options, trained.result, _text(system, trained))
    return 0


def _text(system: System, run: experiments.Run) -> str:
    """Format the result of a training run: where the policy is, and how to use it."""
    seconds = ", ".join(f"{spent:.1f} s {name}" for name, spent in run.result["seconds"].items())
    facts = [
        ("policy", str(run.policy)),
        ("curves", f"tensorboard --logdir {run.workdir}/tensorboard"),
        system.outcome(run.result),
        ("time", seconds),
        ("next", system.next_command(run.policy, run.plan.problem)),
    ]
    return "\n".join(f"{name:<13}{value}" for name, value in facts if value)
