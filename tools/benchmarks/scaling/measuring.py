"""Measurements of pools with runners that sleep."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import psutil

from environments.errors import Failure
from tfrl_systems.drivers.collect import Collect, Supervision, make_pool
from tfrl_systems.drivers.jobs import Pool, PoolError
from tools.benchmarks.scaling.sleeping import Begun, MakeSleeper, Nap, read_diary

NapPool = Pool[Nap, bytes]

_SUPERVISION = Supervision(max_attempts=20, start_timeout_s=600)
# How long a worker that is to be killed has been at its job already, at least.
_BEFORE_KILL_S = 0.2
_TICK_S = 0.02


@dataclasses.dataclass(frozen=True)
class Overhead:
    """What a pool costs for each job that does nothing.

    Attributes:
      wall_ms: time between two jobs of one worker.
      head_ms: processor time of the process that holds the pool.
      engine_ms: processor time of what runs beside it and the workers: Ray's own processes.
    """

    wall_ms: float
    head_ms: float
    engine_ms: float


@contextlib.contextmanager
def opened(collect: Collect) -> Iterator[tuple[NapPool, pathlib.Path]]:
    """Give a pool whose first workers have started, and the diary of all tries of its jobs."""
    pool: NapPool
    with tempfile.TemporaryDirectory() as directory:
        diary = pathlib.Path(directory) / "diary"
        with make_pool(collect, MakeSleeper(diary), _SUPERVISION) as pool:
            pool.broadcast(b"")
            yield pool, diary


@contextlib.contextmanager
def all_at_work(collect: Collect) -> Iterator[NapPool]:
    """Give a pool of which each worker has had a job; a pool does not wait for late workers.

    Raises:
      PoolError: a worker has had none in the time that it may take to start.
    """
    with opened(collect) as (pool, diary):
        until_s = time.monotonic() + _SUPERVISION.start_timeout_s
        while (num_at_work := len({one.pid for one in read_diary(diary)})) < collect.workers:
            if time.monotonic() > until_s:
                raise PoolError(f"expected {collect.workers} workers, found {num_at_work} at work")
            nap(pool, collect.workers, seconds=_TICK_S)
        yield pool


def start_s(collect: Collect) -> float:
    """Return how long it takes until all workers have started, and Ray's cluster with them."""
    began_s = time.perf_counter()
    with opened(collect):
        return time.perf_counter() - began_s


def nap(pool: NapPool, num_jobs: int, seconds: float = 0.0, result_bytes: int = 0) -> float:
    """Run jobs that sleep; return how long it took, in seconds.

    Raises:
      PoolError: a job failed.
    """
    began_s = time.perf_counter()
    results = pool.map([Nap(number, seconds, result_bytes) for number in range(num_jobs)])
    took_s = time.perf_counter() - began_s
    for one in results:
        if isinstance(one, Failure):
            raise PoolError(one.message)
    return took_s


def overhead(collect: Collect, result_bytes: int, num_jobs: int) -> Overhead:
    """Measure what a pool of one worker costs for each job that does nothing.

    Args:
      collect: what the pool is.
      result_bytes: size of a job's result.
      num_jobs: how many jobs are averaged, after as many that are not counted.
    """
    with opened(collect) as (pool, diary):
        nap(pool, num_jobs, result_bytes=result_bytes)
        workers = {begun.pid for begun in read_diary(diary)}
        before = _cpu_s(workers)
        wall_s = nap(pool, num_jobs, result_bytes=result_bytes)
        after = _cpu_s(workers)
    head_s, engine_s = (late - early for early, late in zip(before, after, strict=True))
    return Overhead(*(1e3 * one / num_jobs for one in (wall_s, head_s, engine_s)))


def _cpu_s(workers: set[int]) -> tuple[float, float]:
    """Return the processor time of this process, and that of its children but the workers."""
    engine_s = 0.0
    for process in psutil.Process().children(recursive=True):
        if process.pid not in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                engine_s += sum(process.cpu_times()[:2])
    return time.process_time(), engine_s


def kill(begun: Begun) -> None:
    """Kill the worker's process."""
    os.kill(begun.pid, signal.SIGKILL)


def recoveries_s(
    collect: Collect,
    num_losses: int,
    generator: np.random.Generator,
    lose_fn: Callable[[Begun], None] = kill,
) -> list[float]:
    """Lose workers at random moments; return how long each job waited for its next worker.

    Args:
      collect: what the pool is; with several workers, all are busy all the time.
      num_losses: how many workers are lost, one after another.
      generator: draws the moments and the workers.
      lose_fn: loses the worker that has begun this job.
    """
    with opened(collect) as (pool, diary):
        waited_s: list[float] = []
        while len(waited_s) < num_losses:
            waited_s += _recovery_s(pool, diary, generator, lose_fn)
        return waited_s


def _recovery_s(
    pool: NapPool,
    diary: pathlib.Path,
    generator: np.random.Generator,
    lose_fn: Callable[[Begun], None],
) -> list[float]:
    """Run one long job in each worker, lose one of them, and return how long its job waited.

    Nothing is returned if the job was done before its worker was lost.
    """
    num_before = len(read_diary(diary))
    lost: list[tuple[Begun, float]] = []
    wait_s = _BEFORE_KILL_S + generator.uniform(0, 1)
    victim = int(generator.integers(pool.num_workers))

    def lose() -> None:
        while len(tries := read_diary(diary)[num_before:]) < pool.num_workers:
            time.sleep(_TICK_S)
        time.sleep(wait_s)
        lost.append((tries[victim], time.monotonic()))
        lose_fn(tries[victim])

    # No other worker is free before the lost one has been replaced, if that takes less than this.
    thread = threading.Thread(target=lose)
    thread.start()
    nap(pool, pool.num_workers, seconds=wait_s + 2.0)
    thread.join()
    begun, lost_s = lost[0]
    tries = [one for one in read_diary(diary)[num_before:] if one.number == begun.number]
    return [one.at_s - lost_s for one in tries[1:2]]


def summary(seconds: list[float]) -> dict[str, float]:
    """Return the median and the maximum."""
    return {"median_s": statistics.median(seconds), "max_s": max(seconds)}
