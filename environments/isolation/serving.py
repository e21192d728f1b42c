"""The loop of a program that `process.Process` starts: `python -m PROGRAM SOCKET`.

SOCKET is the number of an inherited file descriptor. The process ends when its other end is closed,
however the caller ends.
"""

from __future__ import annotations

import contextlib
import faulthandler
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from environments.errors import UserError
from environments.isolation import wire

Answer = Callable[[Mapping[str, Any]], dict[str, Any]]
"""request -> answer"""


def serve(answer: Answer) -> None:
    """Answer requests until the socket is closed; an error becomes the answer "error"."""
    faulthandler.disable()
    end = socket.socket(fileno=int(sys.argv[1]))
    with contextlib.suppress(EOFError, OSError):
        while True:
            wire.send(end, _answered(answer, wire.receive(end)))


def _answered(answer: Answer, request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return answer(request)
    except UserError as error:
        return {"error": str(error)}
    except Exception as error:
        # onnxruntime's exceptions have no base class other than Exception.
        return {"error": " ".join(f"{type(error).__name__}: {error}".split())}
