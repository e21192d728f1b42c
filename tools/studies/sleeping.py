"""What takes its time in place of something dear: a runner that sleeps, functions that last."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from typing import NamedTuple

import numpy as np


class Nap(NamedTuple):
    """A job: its number, how long it sleeps, and the size of its result."""

    number: int
    seconds: float = 0.0
    result_bytes: int = 0

    def __str__(self) -> str:
        return f"nap {self.number}"


class Attempt(NamedTuple):
    """One attempt at a job: the worker's process, and when it began by the monotonic clock."""

    number: int
    pid: int
    at_s: float


class Sleeper:
    """Sleeps through each job, and says when and where it began.

    It needs neither TensorFlow nor an environment.

    Args:
      diary: file to which each attempt at a job adds a line.
    """

    def __init__(self, diary: pathlib.Path) -> None:
        self._diary = diary

    def load(self, data: bytes) -> None:
        """Do nothing with it."""

    def run(self, nap: Nap) -> bytes:
        """Sleep, and return zeros."""
        line = f"{nap.number} {os.getpid()} {time.monotonic()!r}\n"
        # One short write in append mode is whole, though other workers write too.
        with self._diary.open("ab", buffering=0) as file:
            file.write(line.encode())
        time.sleep(nap.seconds)
        return bytes(nap.result_bytes)

    def close(self) -> None:
        """Release nothing."""


def read_diary(diary: pathlib.Path) -> list[Attempt]:
    """Return all attempts at jobs so far, in the order in which they began."""
    if not diary.exists():
        return []
    lines = [line.split() for line in diary.read_text(encoding="ascii").splitlines()]
    return [Attempt(int(number), int(pid), float(at_s)) for number, pid, at_s in lines]


@dataclasses.dataclass(frozen=True)
class Lasting:
    """A sphere whose every value takes a while, as simulations and measurements do.

    Attributes:
      seconds: how long a value takes.
      works: whether it takes the processor for so long; otherwise it sleeps.
    """

    seconds: float
    works: bool

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Return the values [N] of points [N, n]."""
        total_s = len(points) * self.seconds
        if self.works:
            until_s = time.thread_time() + total_s
            while time.thread_time() < until_s:
                pass
        else:
            time.sleep(total_s)
        return np.sum(points**2, axis=-1)


working_1_ms, working_10_ms = Lasting(1e-3, True), Lasting(1e-2, True)
sleeping_1_ms, sleeping_10_ms = Lasting(1e-3, False), Lasting(1e-2, False)
