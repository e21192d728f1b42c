"""CPU time of this process and of the processes that it started, including running ones."""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
import time
from collections.abc import Callable
from typing import Any

# The low bits of a Linux clock id that stand for the CPU time of a whole process (CPUCLOCK_SCHED).
_PROCESS_CLOCK = 2


def timed_ms(function: Callable[[], Any]) -> tuple[float, Any]:
    """Call a function; return the CPU time of this process that it took, in ms, and its result."""
    began_s = time.process_time()
    result = function()
    return 1e3 * (time.process_time() - began_s), result


def cpu_s() -> float:
    """Return the CPU time, in seconds, that this process and its children have used so far.

    It is the sum of user and system time of this process, its running children and those that have
    ended. A grandchild counts only after its parent has waited for it and has itself ended.
    """
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = sum(usage.ru_utime + usage.ru_stime for usage in used)
    for pid in _children():
        with contextlib.suppress(OSError):
            total += time.clock_gettime(~pid << 3 | _PROCESS_CLOCK)
    return total


def _children() -> set[int]:
    """Return the ids of the processes that this one started and has not yet waited for."""
    children: set[int] = set()
    for task in pathlib.Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            children |= {int(pid) for pid in (task / "children").read_text().split()}
    return children - {os.getpid()}
