"""A runner that sleeps in place of an environment, and says when and where each job began."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from typing import NamedTuple


class Nap(NamedTuple):
    """A job.

    Attributes:
      number: number of the job.
      seconds: how long it sleeps.
      result_bytes: size of its result.
    """

    number: int
    seconds: float = 0.0
    result_bytes: int = 0

    def __str__(self) -> str:
        return f"nap {self.number}"


class Begun(NamedTuple):
    """One try of a job.

    Attributes:
      number: number of the job.
      pid: the worker's process.
      at_s: when it began, in seconds of this machine's monotonic clock.
    """

    number: int
    pid: int
    at_s: float


@dataclasses.dataclass(frozen=True)
class MakeSleeper:
    """Makes the runner of a worker.

    Attributes:
      diary: file to which each try of a job adds a line.
    """

    diary: pathlib.Path

    def __call__(self) -> Sleeper:
        """Make the runner."""
        return Sleeper(self.diary)


class Sleeper:
    """Sleeps through each job; needs neither TensorFlow nor an environment."""

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


def read_diary(diary: pathlib.Path) -> list[Begun]:
    """Return all tries of jobs so far, in the order in which they began."""
    if not diary.exists():
        return []
    lines = [line.split() for line in diary.read_text(encoding="ascii").splitlines()]
    return [Begun(int(number), int(pid), float(at_s)) for number, pid, at_s in lines]
