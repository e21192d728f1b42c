"""The verb `tfrl build`, which runs a build with a policy in its compilers."""

from __future__ import annotations

import argparse
from typing import Any

from tfrl_systems import experiments
from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import say, show_json
from tfrl_systems.experiments.arguments import add_fields, read_fields
from tfrl_systems.experiments.records import implementation_of
from tfrl_systems.reporting import Terminal

# These fields of what to build are no options.
_OTHERWISE = ("command", "quiet")


def add_parser(subparsers: Any) -> None:
    """Add `build` to the verbs."""
    parser = shared.add_verb_of_few(
        subparsers, "build", "your own build, its inlining decided by a policy"
    )
    parser.usage = "tfrl build [options] -- COMMAND..."
    parser.fill_fn = _fill
    parser.set_defaults(run=run)


def _fill(parser: shared.LazyParser) -> None:
    add_fields(parser, implementation_of("build").Build, _OTHERWISE)
    shared.add_json(parser)
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what builds, after --"
    )


def run(options: argparse.Namespace) -> int:
    """Build as the command line says; return the command's exit status."""
    building = implementation_of("build")
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    with Terminal() as terminal:
        report = experiments.build(
            command,
            quiet=options.json,
            reporter=terminal,
            **read_fields(options, building.Build, _OTHERWISE),
        )
    if options.json:
        show_json(report)
    else:
        # The command's own output has stdout.
        say(building.to_text(report))
    return report["status"]
