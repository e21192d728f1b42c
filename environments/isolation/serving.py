"""The loop of a program that `process.Process` starts: `python -m PROGRAM SOCKET`.

SOCKET is the number of an inherited file descriptor. The process ends when the caller does, however
that ends: its end of the socket closes, and a thread notices it during a long answer.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from environments.errors import one_line
from environments.isolation import wire

_CHECK_S = 1.0

Answer = Callable[[Mapping[str, Any]], dict[str, Any]]
"""request -> answer"""


def serve(answer: Answer) -> None:
    """Answer requests until the socket is closed; an error becomes the answer "error"."""
    faulthandler.disable()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    end = socket.socket(fileno=int(sys.argv[1]))
    with contextlib.suppress(EOFError, OSError):
        while True:
            wire.send(end, _answered(answer, wire.receive(end)))


def _end_with(parent_pid: int) -> None:
    """End this process soon after its parent, even during an endless answer."""
    while os.getppid() == parent_pid:
        time.sleep(_CHECK_S)
    os._exit(1)


def _answered(answer: Answer, request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return answer(request)
    except Exception as error:
        # onnxruntime's exceptions have no base class other than Exception.
        return {"error": one_line(error)}
