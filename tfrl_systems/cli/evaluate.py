"""The verb `tfrl evaluate`, which measures how good policies are."""

from __future__ import annotations

import argparse
from typing import Any

from tfrl_systems import experiments
from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import show_result
from tfrl_systems.experiments.arguments import add_fields, read_fields
from tfrl_systems.experiments.records import find_system
from tfrl_systems.reporting import Terminal


def add_parser(subparsers: Any) -> None:
    """Add `evaluate` to the verbs."""
    shared.add_system_verb(subparsers, "evaluate", "how good policies are", _fill, run)


def _fill(name: str, parser: shared.LazyParser) -> None:
    system = find_system(name)
    purpose = system.examples.get("evaluate", f"Plays episodes of {name} with each policy.\n")
    width = max(map(len, system.policies), default=0)
    names = "\n".join(f"  {policy:{width}}  {what}" for policy, what in system.policies.items())
    parser.description = (
        f"{purpose}\nA policy is a directory that `tfrl train {name}` wrote, or one of\n{names}\n"
    )
    parser.add_argument(
        "--policy",
        action="append",
        required=not system.default_policy,
        dest="policies",
        metavar="DIR|NAME",
        help=f"a policy's directory or name; may be repeated{shared.default_of(system)}",
    )
    add_fields(parser, system.evaluation_type or system.problem_type)
    shared.add_seed(parser, "what is left to chance")
    shared.add_json(parser)


def run(name: str, options: argparse.Namespace) -> int:
    """Evaluate policies as the command line says."""
    system = find_system(name)
    with Terminal() as terminal:
        evaluation = experiments.evaluate(
            name,
            policies=options.policies or [system.default_policy],
            seed=options.seed,
            reporter=terminal,
            **read_fields(options, system.evaluation_type or system.problem_type),
        )
    show_result(options, evaluation, system.table(evaluation))
    return 0
