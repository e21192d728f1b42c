"""The program `tfrl`: parse the command line, run a verb, and return an exit status.

The status is 0 for success, 1 for an error that the user can correct (one line says how), 2 for
wrong usage, and 130 for an interruption.
"""

from __future__ import annotations

import argparse
import importlib
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from environments.errors import UsageError, UserError
from environments.machine import package_versions
from tfrl_systems.cli.console import discard_output, prepare_streams, say

_DESCRIPTION = """\
Learns decisions in computer systems, and applies what was learned.

  tfrl corpus build my-project/ -o runs/mine
  tfrl train inlining --agent bc_max --corpus runs/mine --workdir runs/first
  tfrl evaluate inlining --policy runs/first/policy --policy default --corpus runs/mine
  tfrl train learn_to_optimize --agent ppo --function shifted_ackley --workdir runs/ackley
  tfrl optimize model.onnx -o fast.onnx

`tfrl VERB --help` explains each verb; `tfrl doctor` tells what works on this machine.
"""
# Modules of this package, imported late: an interruption while they load is one line, too.
_VERBS = (
    "train", "evaluate", "build", "export", "optimize", "replay", "rules", "corpus", "bench",
    "cache", "doctor",
)  # fmt: skip


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line."""
    from tfrl_systems.cli.options import LazyParser

    parser = argparse.ArgumentParser(
        prog="tfrl",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    version = package_versions(["tfrl-systems"])["tfrl-systems"] or "(not installed)"
    parser.add_argument("--version", action="version", version=f"tfrl {version}")
    subparsers = parser.add_subparsers(
        title="verbs", metavar="VERB", required=True, parser_class=LazyParser
    )
    for verb in _VERBS:
        importlib.import_module(f"tfrl_systems.cli.{verb}").add_parser(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
      arguments: command line without the program's name; None for that of `sys.argv`.

    Returns:
      The exit status.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    options = argparse.Namespace()
    with _interruptions() as interruptions:
        try:
            options = _parse(words)
            return options.run(options)
        except UsageError as error:
            say(f"tfrl: {error}")
            return 2
        except UserError as error:
            say(f"tfrl: {' '.join(str(error).split())}")
            return 1
        except BrokenPipeError:
            # The reader closed its end of the pipe.
            discard_output()
            return 1
        except (Exception, KeyboardInterrupt) as error:
            # A module interrupted while it loads may turn the interruption into another error.
            if not interruptions and isinstance(error, Exception):
                raise
            say(f"tfrl: interrupted{_remedy(words, options)}")
            return 130


def _parse(words: list[str]) -> argparse.Namespace:
    try:
        return make_parser().parse_args(words)
    finally:
        sys.stdout.flush()  # the text of --help


@contextmanager
def _interruptions() -> Iterator[list[int]]:
    """Give a list that gets an entry when the user presses Ctrl-C."""
    interruptions: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        interruptions.append(number)
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    # A caller that ignores the signal, as nohup does, or handles it keeps its handler.
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interruptions
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield interruptions
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _remedy(words: list[str], options: argparse.Namespace) -> str:
    if not hasattr(options, "resume"):
        return ""
    if not options.resume:
        words = [*words, "--resume"]
    return f"; go on with: {shlex.join(['tfrl', *words])}"


if __name__ == "__main__":
    sys.exit(main())
