"""How the loss of a cluster on this machine is noticed, and what is said of it."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Mapping

import psutil

_TICK_S = 0.01


class Watch:
    """Tells at once whether one of some processes has ended.

    Args:
      pids: numbers of the processes, by what they are called.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._watched = {name: _Watched(pid) for name, pid in pids.items()}

    def ended(self, timeout_s: float = 0.0) -> str:
        """Return what the first of the ended processes is called; "" if all run for a time."""
        until_s = time.monotonic() + timeout_s
        while True:
            ended = next((name for name, one in self._watched.items() if one.has_ended()), "")
            if ended or time.monotonic() >= until_s:
                return ended
            time.sleep(_TICK_S)

    def close(self) -> None:
        """Let go of the processes."""
        while self._watched:
            self._watched.popitem()[1].close()


class _Watched:
    def __init__(self, pid: int) -> None:
        self._process: psutil.Process | None = None
        self._fd: int | None = None
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process = psutil.Process(pid)
        if hasattr(os, "pidfd_open"):  # a hundred times faster than psutil
            with contextlib.suppress(OSError):
                self._fd = os.pidfd_open(pid)
                self._poller = select.poll()
                self._poller.register(self._fd, select.POLLIN)

    def has_ended(self) -> bool:
        if self._fd is not None:
            return bool(self._poller.poll(0))
        try:
            return self._process is None or self._process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)


def message(name: str) -> str:
    """Return what a user is told when a cluster was lost because a process of it has ended."""
    return (
        "collect: expected the Ray cluster that was started on this machine, found that its "
        f"{name} has ended; run the same command with --resume"
    )
