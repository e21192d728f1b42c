"""Finding and signalling the processes of one run, and nobody else's.

Every process of a run has inherited an environment variable with a value of its own, the path of
the run's directory, so it is found whatever its parent, its session and its name have become.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import signal
import time
from typing import NamedTuple

import numpy as np

MARK = "TFRL_FAULT_CAMPAIGN"
# What is in the command lines of processes that a fault may strike.
_ROLES = {
    "worker": ("drivers.pipes.worker_main",),
    "ray worker": ("ray::Worker", "ray::IDLE"),
    "ray node": ("/raylet/raylet", "/gcs/gcs_server"),
    "compiler": ("embedded_worker", "clang", "ziglang"),
}


class Process(NamedTuple):
    """A process that was alive: its number, and its command line."""

    pid: int
    command: str

    @property
    def role(self) -> str:
        """What it does in the run; "" for what no fault strikes."""
        if "guardian_process" in self.command or "cli.main" in self.command:
            return ""
        roles = (role for role, parts in _ROLES.items() if any(p in self.command for p in parts))
        return next(roles, "")


def find(mark: str) -> list[Process]:
    """Return the live processes with a mark; those that only wait to be buried are not alive."""
    wanted = f"{MARK}={mark}".encode()
    marked = []
    for place in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ")
            is_marked = wanted in (place / "environ").read_bytes().split(b"\0")
            is_ours = is_marked or command.startswith(b"ray::") and _has_open_below(place, mark)
            if is_ours and (place / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                marked.append(Process(int(place.name), command.decode(errors="replace")))
    return marked


def _has_open_below(place: pathlib.Path, directory: str) -> bool:
    """Return whether a process has a file open there: Ray's agents write over their environment."""
    return any(
        str(link.readlink()).startswith(f"{directory}/") for link in (place / "fd").iterdir()
    )


class Target:
    """One process, held by a descriptor, so that its number can go to no other process unnoticed.

    Args:
      pid: its number.
      mark: its run's mark.

    Raises:
      ProcessLookupError: it has ended.
    """

    def __init__(self, pid: int, mark: str) -> None:
        self._fd = os.pidfd_open(pid)
        self.pid = pid
        if pid not in {process.pid for process in find(mark)}:
            self.close()
            raise ProcessLookupError(pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal.

        Raises:
          ProcessLookupError: it has ended.
        """
        signal.pidfd_send_signal(self._fd, number)

    def has_ended(self, timeout_s: float = 0.0) -> bool:
        """Return whether it has ended, or ends within a time."""
        return bool(select.select([self._fd], [], [], timeout_s)[0])

    def close(self) -> None:
        """Let go of it."""
        os.close(self._fd)


def pick(
    mark: str, roles: list[str], random: np.random.Generator
) -> tuple[Target, str] | tuple[None, str]:
    """Return one of a run's processes with one of the roles, and its role; None without one."""
    candidates = sorted(process for process in find(mark) if process.role in roles)
    if candidates:
        chosen = candidates[int(random.integers(len(candidates)))]
        with contextlib.suppress(ProcessLookupError):
            return Target(chosen.pid, mark), chosen.role
    return None, ""


def wait_until_gone(mark: str, timeout_s: float) -> tuple[list[Process], float]:
    """Wait until no process has a mark; return those left after a time, and the seconds waited."""
    began_s = time.monotonic()
    while (left := find(mark)) and time.monotonic() - began_s < timeout_s:
        time.sleep(0.05)
    return left, time.monotonic() - began_s


def end(mark: str) -> None:
    """Kill all processes with a mark, and bury the adopted children that have ended."""
    while marked := find(mark):
        for process in marked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.05)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
