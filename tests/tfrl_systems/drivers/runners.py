"""Runners without TensorFlow, so that workers are up at once, and the ways in which they fail."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import pathlib
import resource
import signal
import time
from collections.abc import Callable

import numpy as np

from environments.errors import UserError


@dataclasses.dataclass(frozen=True)
class Task:
    """A job: numbers drawn from `seed`.

    Attributes:
      seed: of the numbers.
      fault: what goes wrong, a name in `FAULTS`; "" for nothing.
      times: how often it does before the job succeeds.
      size: how many numbers.
    """

    seed: int
    fault: str = ""
    times: int = 1
    size: int = 4

    def __str__(self) -> str:
        return f"task {self.seed}"


class Noise:
    """Draws numbers around the one that was broadcast.

    Args:
      memory: where it is remembered across workers which faults there were; without, faults go on.
    """

    def __init__(self, memory: pathlib.Path | None = None) -> None:
        self._memory = memory
        self._mean = 0.0

    def load(self, data: bytes) -> None:
        fault = FAULTS.get(data.decode())
        if fault is not None:
            fault()
        self._mean = float(data)

    def run(self, task: Task) -> np.ndarray:
        if task.fault and self._is_due(task):
            FAULTS[task.fault]()
        return np.random.default_rng(task.seed).normal(self._mean, size=task.size)

    def _is_due(self, task: Task) -> bool:
        if self._memory is None:
            return True
        so_far = len(list(self._memory.glob(f"{task.seed}.*")))
        if so_far < task.times:
            (self._memory / f"{task.seed}.{so_far}").touch()
        return so_far < task.times

    def close(self) -> None:
        pass


def _raise() -> None:
    raise ValueError("bad luck,\nas it happens")


def _raise_for_users() -> None:
    raise UserError("luck: expected good, found bad; try again")


def _exit() -> None:
    raise SystemExit(3)


def _run_out_of_memory() -> None:
    """From now on this process gets no more of it; small objects may still find some."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))
    np.ones(10_000_000)


FAULTS: dict[str, Callable[[], object]] = {
    "raise": _raise,
    "raise for users": _raise_for_users,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: ctypes.string_at(0),
    "exit": _exit,
    "out of memory": _run_out_of_memory,
    "hang": lambda: time.sleep(1e6),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    # Python cannot run meanwhile: not for its signals and not for its threads.
    "hang in C": lambda: ctypes.PyDLL(None).sleep(1_000_000),
}
