"""`tfrl evaluate`: what policies save."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from tfrl_systems.cli import options as shared

_DESCRIPTION = """\
Compiles every module of a corpus under each policy and compares the objects with those of LLVM's
own -Oz decisions.

  tfrl evaluate inlining --policy runs/first/policy --policy default --corpus runs/corpus/heldout
  tfrl evaluate inlining --policy runs/first/policy --corpus runs/mine --never-worse --json

Sizes are the text column of llvm-size (code, read-only data, unwind tables); "exec" counts
executable sections only. A policy is a directory that `tfrl train` wrote, or one of default,
always, never, random, cost<N (inline where LLVM's cost estimate is below N; -Oz uses 5).
"""


def add_parser(subparsers: Any) -> None:
    """Adds `evaluate` to the verbs."""
    verb = shared.add_verb(
        subparsers, "evaluate", "compare policies with the default", "Evaluates policies."
    )
    environments = verb.add_subparsers(title="environments", metavar="ENV", required=True)
    parser = shared.add_verb(environments, "inlining", "which calls to inline", _DESCRIPTION)
    parser.add_argument(
        "--policy",
        action="append",
        required=True,
        dest="policies",
        metavar="DIR|NAME",
        help="a policy's directory or name; may be repeated",
    )
    parser.add_argument(
        "--corpus", type=pathlib.Path, required=True, metavar="DIR", help="modules to compile"
    )
    parser.add_argument(
        "--never-worse",
        action="store_true",
        help="also keep, for each module, the smaller of the policy's object and the default's, "
        "and measure what compiling twice costs; nothing is recalled from --cache for it",
    )
    parser.add_argument(
        "--seed",
        type=shared.whole_number(0),
        default=0,
        metavar="S",
        help="of the policy random (default: 0)",
    )
    shared.add_compiler(parser)
    shared.add_collection(parser)
    shared.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Evaluates."""
    from tfrl_systems.cli.inlining import evaluate as evaluate_inlining

    return evaluate_inlining.run(options)
