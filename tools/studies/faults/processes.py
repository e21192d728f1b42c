"""Finding and ending the processes of one run, and nobody else's.

Every process of a run has inherited an environment variable with a value of its own, the path of
the run's directory, so it is found whatever its parent, its session and its name have become.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import psutil

MARK = "TFRL_FAULT_CAMPAIGN"
# What is in the command lines of processes that a fault may strike.
_ROLES = {
    "worker": ("drivers.pipes.worker_main",),
    "ray worker": ("ray::Worker", "ray::IDLE"),
    "ray node": ("/raylet/raylet", "/gcs/gcs_server"),
    "compiler": ("embedded_worker", "clang", "ziglang"),
}


class Marked(NamedTuple):
    """A process of a run that was alive, and its command line."""

    process: psutil.Process
    command: str

    @property
    def role(self) -> str:
        """What it does in the run; "" for what no fault strikes."""
        if "guardian_process" in self.command or "cli.main" in self.command:
            return ""
        roles = (role for role, parts in _ROLES.items() if any(p in self.command for p in parts))
        return next(roles, "")


def has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, though it may wait to be buried."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return True


def find(mark: str) -> list[Marked]:
    """Return the live processes with a mark."""
    marked = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())
            is_ours = process.environ().get(MARK) == mark
            # Ray's agents write over their environment.
            if not is_ours and command.startswith("ray::"):
                is_ours = any(file.path.startswith(f"{mark}/") for file in process.open_files())
            if is_ours and not has_ended(process):
                marked.append(Marked(process, command))
    return marked


def pick(mark: str, roles: Collection[str], random: np.random.Generator) -> Marked | None:
    """Return one of a run's processes with one of the roles."""
    candidates = [marked for marked in find(mark) if marked.role in roles]
    return candidates[int(random.integers(len(candidates)))] if candidates else None


def wait_until_gone(mark: str, timeout_s: float) -> tuple[list[Marked], float]:
    """Wait until no process has a mark; return those left after a time, and the seconds waited."""
    began_s = time.monotonic()
    while (left := find(mark)) and time.monotonic() - began_s < timeout_s:
        time.sleep(0.05)
    return left, time.monotonic() - began_s


def end(mark: str) -> None:
    """Kill all processes with a mark, and bury the adopted children that have ended."""
    while marked := find(mark):
        for process, _ in marked:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.05)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can still be found and ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
