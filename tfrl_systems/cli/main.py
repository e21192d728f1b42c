"""The program `tfrl`: parse the command line, run a verb, and return an exit status.

The status is 0 for success, 1 for an error that the user can correct (one line says how), 2 for
wrong usage, and 130 for an interruption.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import os
import shlex
import sys
from collections.abc import Sequence

from environments.errors import UsageError, UserError
from tfrl_systems.cli import (
    bench,
    build,
    cache,
    corpus,
    doctor,
    evaluate,
    export,
    optimize,
    rules,
    train,
)
from tfrl_systems.cli.console import say
from tfrl_systems.cli.options import LazyParser

_DESCRIPTION = """\
Learns decisions in computer systems, and applies what was learned.

  tfrl corpus build my-project/ -o runs/mine
  tfrl train inlining --agent bc_max --corpus runs/mine --workdir runs/first
  tfrl evaluate inlining --policy runs/first/policy --policy default --corpus runs/mine
  tfrl train learn_to_optimize --agent ppo --function shifted_ackley --workdir runs/ackley
  tfrl optimize model.onnx -o fast.onnx

`tfrl VERB --help` explains each verb; `tfrl doctor` tells what works on this machine.
"""
_VERBS = (train, evaluate, build, export, optimize, rules, corpus, bench, cache, doctor)


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="tfrl",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"tfrl {_version()}")
    subparsers = parser.add_subparsers(
        title="verbs", metavar="VERB", required=True, parser_class=LazyParser
    )
    for verb in _VERBS:
        verb.add_parser(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
      arguments: command line without the program's name; None for that of `sys.argv`.

    Returns:
      The exit status.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of files need not be text.
        sys.stdout.reconfigure(errors="backslashreplace")
    options = make_parser().parse_args(given)
    try:
        return options.run(options)
    except UsageError as error:
        say(f"tfrl: {error}")
        return 2
    except UserError as error:
        say(f"tfrl: {' '.join(str(error).split())}")
        return 1
    except KeyboardInterrupt:
        say(f"tfrl: interrupted{_remedy(given, options)}")
        return 130
    except BrokenPipeError:
        # The reader closed its end of the pipe. Python must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _remedy(given: list[str], options: argparse.Namespace) -> str:
    if not hasattr(options, "resume"):
        return ""
    if not options.resume:
        given = [*given, "--resume"]
    return f"; go on with: {shlex.join(['tfrl', *given])}"


def _version() -> str:
    try:
        return importlib.metadata.version("tfrl-systems")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
