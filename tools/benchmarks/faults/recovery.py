"""How long it takes until the chunk of a lost worker is in work again."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import statistics
import tempfile
import threading
import time

from tfrl_systems.drivers.collect import Collect, Supervision, make_pool

_JOB_S = 0.5
_KILL_AFTER_S = 0.25
_POLL_S = 0.002


@dataclasses.dataclass(frozen=True)
class _Runner:
    """Writes who began which job when, and then sleeps.

    Attributes:
      log: the file that it writes to.
    """

    log: pathlib.Path

    def load(self, data: bytes) -> None:
        """Take the data of a broadcast."""

    def run(self, job: int) -> int:
        """Run a job."""
        line = f"{job} {os.getpid()} {time.monotonic()}\n".encode()
        with self.log.open("ab", buffering=0) as file:
            file.write(line)
        time.sleep(_JOB_S)
        return job

    def close(self) -> None:
        """Do nothing."""


def measure(kind: str, kills: int, number: signal.Signals = signal.SIGKILL) -> list[float]:
    """Kill workers in the middle of jobs; return the seconds until each job was begun again.

    Args:
      kind: of the pool (`collect.POOLS`); two workers run in it.
      kills: how many workers to kill.
      number: the signal that ends them.
    """
    with tempfile.TemporaryDirectory(prefix="fc-", dir="/tmp") as directory:
        log = pathlib.Path(directory) / "begun"
        log.touch()
        killed: dict[int, float] = {}
        jobs = list(range(2 * kills + 4))
        with make_pool(Collect(kind, 2), _MakeRunner(log), Supervision(timeout_s=60)) as pool:
            pool.broadcast(b"")
            killer = threading.Thread(target=_kill, args=(log, kills, killed, number), daemon=True)
            killer.start()
            found = pool.map(jobs)
            killer.join(60)
        assert found == jobs
        return _times(log, killed)


@dataclasses.dataclass(frozen=True)
class _MakeRunner:
    log: pathlib.Path

    def __call__(self) -> _Runner:
        return _Runner(self.log)


def _read(log: pathlib.Path) -> list[tuple[int, int, float]]:
    words = [line.split() for line in log.read_text().splitlines()]
    return [(int(job), int(pid), float(began_s)) for job, pid, began_s in words]


def _kill(log: pathlib.Path, kills: int, killed: dict[int, float], number: signal.Signals) -> None:
    """Kill the worker of every other job that begins, in the middle of it."""
    seen: set[int] = set()
    while len(killed) < kills:
        for job, pid, began_s in _read(log):
            if job not in seen and job % 2 == 0 and len(killed) < kills:
                seen.add(job)
                time.sleep(max(began_s + _KILL_AFTER_S - time.monotonic(), 0))
                killed[job] = time.monotonic()
                os.kill(pid, number)
        time.sleep(_POLL_S)


def _times(log: pathlib.Path, killed: dict[int, float]) -> list[float]:
    begun = _read(log)
    return [
        min(began_s for one, _, began_s in begun if one == job and began_s > killed_s) - killed_s
        for job, killed_s in killed.items()
    ]


def to_text(kind: str, seconds: list[float]) -> str:
    """Return the measurement in one line."""
    return (
        f"{kind}: {len(seconds)} workers killed; their chunks were in work again after "
        f"{statistics.median(seconds):.3f} s (median), {max(seconds):.3f} s (longest)"
    )
