"""The verb `tfrl build`, which runs a build with a policy in its compilers."""

from __future__ import annotations

import argparse
from typing import Any

from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import say, show_json
from tfrl_systems.experiments.arguments import path_of_file
from tfrl_systems.reporting import Terminal

_DESCRIPTION = """\
Runs COMMAND, and lets a policy decide what its clangs inline.

  tfrl build --policy runs/quickstart/policy -- cmake --build b
  tfrl build --policy runs/quickstart/policy -- make -j8
  tfrl build --policy default -- ninja -C b          as COMMAND alone: LLVM's own decisions
  tfrl build --policy DIR --compare plain/ -- ninja  sizes beside those of a plain build in plain/

The tree stays configured as it is. Only functions that are compiled for size (-Oz) are decided by
the policy; -Os, as CMake's MinSizeRel has it, is not enough. Each stock clang from LLVM 19 on is
steered whose headers are there (llvm-N-dev); a plugin for it is built on first use and kept. GCC,
other clangs, clang-cl, zig, the assembler and links go their way. What cannot be steered is
compiled as it would be alone, and named at the end. The exit status is COMMAND's.

With link-time optimisation (-flto) LLVM inlines when it links, so nothing is steered.

Clangs learn of the policy from environment variables (CCC_OVERRIDE_OPTIONS, TFRL_INLINING_LOG and
TFRL_INLINING_CONFIG), so a build that gives its compilers an environment of its own, as SCons and
Bazel do, has to let these through.

Make and Ninja compile only what has changed: to have everything decided by the policy, clean first.
ccache and sccache know the policy and give no objects of another one; Go gets a cache for each.
"""


def add_parser(subparsers: Any) -> None:
    """Add `build` to the verbs."""
    parser = shared.add_verb(
        subparsers, "build", "your own build, its inlining decided by a policy", _DESCRIPTION
    )
    parser.usage = "tfrl build --policy DIR|NAME [options] -- COMMAND..."
    parser.fill_fn = _fill
    parser.set_defaults(run=run)


def _fill(parser: shared.LazyParser) -> None:
    parser.add_argument("--policy", required=True, metavar="DIR|NAME", help="what decides")
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
    shared.add_json(parser)
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what builds, after --"
    )


def run(options: argparse.Namespace) -> int:
    """Build as the command line says; return the command's exit status."""
    from tfrl_systems.systems.inlining.building import steered_build

    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    asked = steered_build.Build(
        command, options.policy, options.compilers, options.compare, quiet=options.json
    )
    with Terminal() as terminal:
        found = steered_build.build(asked, terminal)
    if options.json:
        show_json(found)
    else:
        # The command's own output has stdout.
        say(steered_build.to_text(found))
    return found["status"]
