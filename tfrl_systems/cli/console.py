"""Output for the user: results on stdout, everything else on stderr."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from typing import Any

from environments.errors import UserError

_STREAMS = {"stdin": "r", "stdout": "w", "stderr": "w"}


def prepare_streams() -> None:
    """Make all output printable, and open closed streams on the null device.

    In Python a closed stream is None, and what is meant for stderr then goes to stdout. The next
    file that is opened would get the stream's number, and all that other programs write there.
    """
    for number, (name, mode) in enumerate(_STREAMS.items()):
        if getattr(sys, name) is None:
            _lead_nowhere(number)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of files may hold bytes that are no text.
        sys.stdout.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Discard stdout and stderr, so that Python does not try to write the rest at its end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            _lead_nowhere(stream.fileno())


def say(message: str) -> None:
    """Print one line for the user to read, on stderr; if nobody can, go on."""
    with contextlib.suppress(OSError):
        print(message, file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print a result.

    Raises:
      UserError: it cannot be written.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        _lead_nowhere(sys.stdout.fileno())
        raise UserError(
            f"stdout: expected room for the result, found: {error.strerror}; write it elsewhere"
        ) from error


def show_json(value: Any) -> None:
    """Print a result as one JSON object; see `show`."""
    show(json.dumps(value, allow_nan=False))


def show_result(options: argparse.Namespace, value: Any, text: str) -> None:
    """Print a result as one JSON object if the command line says --json, else as text."""
    if options.json:
        show_json(value)
    else:
        show(text)


def _lead_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere == number:
        os.set_inheritable(number, True)
        return
    os.dup2(nowhere, number)
    os.close(nowhere)
