"""The verb `tfrl build`, which runs a build with a policy in its compilers."""

from __future__ import annotations

import argparse
from typing import Any

from tfrl_systems import experiments
from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import say, show_json
from tfrl_systems.experiments.arguments import path_of_file
from tfrl_systems.experiments.records import implementation_of
from tfrl_systems.reporting import Terminal


def add_parser(subparsers: Any) -> None:
    """Add `build` to the verbs."""
    parser = shared.add_verb_of_few(
        subparsers, "build", "your own build, its inlining decided by a policy"
    )
    parser.usage = "tfrl build [options] -- COMMAND..."
    parser.add_argument(
        "--policy", metavar="DIR|NAME", help="what decides (default: the installation's own)"
    )
    parser.add_argument(
        "--compiler",
        action="append",
        default=[],
        dest="compilers",
        metavar="CLANG",
        help="a clang to steer; may be repeated (default: those that the tree and PATH name)",
    )
    parser.add_argument(
        "--compare",
        type=path_of_file,
        metavar="DIR",
        help="a plain build of the same tree, whose images are shown beside",
    )
    parser.add_argument(
        "--tune",
        action="store_true",
        dest="tuned",
        help="build about six times, with several margins, and keep what links smallest; never "
        "larger than plain",
    )
    shared.add_json(parser)
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what builds, after --"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Build as the command line says; return the command's exit status."""
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    with Terminal() as terminal:
        report = experiments.build(
            command,
            policy=options.policy,
            compilers=options.compilers,
            compared=options.compare,
            tuned=options.tuned,
            quiet=options.json,
            reporter=terminal,
        )
    if options.json:
        show_json(report)
    else:
        # The command's own output has stdout.
        say(implementation_of("build").to_text(report))
    return report["status"]
