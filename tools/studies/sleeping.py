"""A runner that sleeps in place of an environment, and says when and where each job began."""

from __future__ import annotations

import os
import pathlib
import time
from typing import NamedTuple


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
    """Sleeps through each job; needs neither TensorFlow nor an environment.

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
