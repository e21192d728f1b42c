"""How collection scales: what pools cost for a job, and what a lost worker costs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil

from environments.errors import Failure
from tfrl_systems.drivers.collect import Collect, Supervision, make_pool
from tfrl_systems.drivers.jobs import Pool, PoolError
from tfrl_systems.settings import option
from tools.studies.sleeping import Nap, Sleeper, read_diary
from tools.studies.study import Record, Study, Table, Trial, first, median

NapPool = Pool[Nap, bytes]

_SUPERVISION = Supervision(max_attempts=20, start_timeout_s=600)
_SLEEP_S = 0.2
_JOBS_PER_WORKER = 10
# How long a worker that is to be killed has been at its job already, at least.
_BEFORE_KILL_S = 0.2
_TICK_S = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pools:
    """How large the pools are, and how much they lose.

    Attributes:
      kinds: pipes or ray; may be repeated.
      most_workers: measured are 1, 2, 4, … workers, up to so many.
      losses: workers to kill.
      naps: jobs to average.
      seed: decides when workers are lost.
    """

    kinds: tuple[str, ...] = option(
        ("pipes", "ray"), flag="--collect", metavar="KIND", choices=("pipes", "ray")
    )
    most_workers: int = option(32, metavar="N", minimum=1)
    losses: int = option(20, metavar="N", minimum=0)
    naps: int = option(500, metavar="N", minimum=1)
    seed: int = option(0, metavar="S", minimum=0)


def _trials(options: Pools) -> Iterator[Trial]:
    counts = [1 << k for k in range(options.most_workers.bit_length())]
    for kind in options.kinds:
        shared_by_all = {"kind": kind, "seed": options.seed}
        yield Trial(f"{kind}-start", {**shared_by_all, "measure": "start"})
        for size in (0, 100_000, 1_000_000):
            about = {"measure": "overhead", "result_bytes": size, "jobs": options.naps}
            yield Trial(f"{kind}-{size}-bytes", {**shared_by_all, **about})
        for workers in counts:
            about = {"measure": "scaling", "workers": workers}
            yield Trial(f"{kind}-{workers}-workers", {**shared_by_all, **about})
        if options.losses:
            about = {"measure": "recovery", "losses": options.losses}
            yield Trial(f"{kind}-lost-worker", {**shared_by_all, **about})


def measure(about: Record, _: pathlib.Path) -> Record:
    """Measure one thing of one kind of pool."""
    kind = about["kind"]
    match about["measure"]:
        case "start":
            began_s = time.perf_counter()
            with opened(Collect(kind, 2)):
                return {"what": "start of 2 workers, s", "figure": time.perf_counter() - began_s}
        case "overhead":
            return overhead(Collect(kind, 1), about["result_bytes"], about["jobs"])
        case "scaling":
            num_jobs = about["workers"] * _JOBS_PER_WORKER
            with all_at_work(Collect(kind, about["workers"])) as pool:
                took_s = nap(pool, num_jobs, _SLEEP_S)
            return {"share": num_jobs * _SLEEP_S / (about["workers"] * took_s)}
    generator = np.random.default_rng(about["seed"])
    return {"waited_s": recoveries_s(Collect(kind, 2), about["losses"], generator)}


@contextlib.contextmanager
def opened(collect: Collect) -> Iterator[tuple[NapPool, pathlib.Path]]:
    """Give a pool whose first workers have started, and the diary of all attempts at its jobs."""
    pool: NapPool
    with tempfile.TemporaryDirectory() as directory:
        diary = pathlib.Path(directory) / "diary"
        with make_pool(collect, functools.partial(Sleeper, diary), _SUPERVISION) as pool:
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
        while (at_work := len({begun.pid for begun in read_diary(diary)})) < collect.workers:
            if time.monotonic() > until_s:
                raise PoolError(f"expected {collect.workers} workers, found {at_work} at work")
            nap(pool, collect.workers, seconds=_TICK_S)
        yield pool


def nap(pool: NapPool, num_jobs: int, seconds: float = 0.0, result_bytes: int = 0) -> float:
    """Run jobs that sleep; return how long it took, in seconds.

    Raises:
      PoolError: a job failed.
    """
    began_s = time.perf_counter()
    results = pool.map([Nap(number, seconds, result_bytes) for number in range(num_jobs)])
    took_s = time.perf_counter() - began_s
    for result in results:
        if isinstance(result, Failure):
            raise PoolError(result.message)
    return took_s


def overhead(collect: Collect, result_bytes: int, num_jobs: int) -> Record:
    """Return what a pool of one worker costs for each job that does nothing, in ms.

    `wall` is the time between two jobs, `head` the processor time of this process, and `engine`
    that of what runs beside it and the workers: Ray's own processes.
    """
    with opened(collect) as (pool, diary):
        nap(pool, num_jobs, result_bytes=result_bytes)  # not counted
        workers = {begun.pid for begun in read_diary(diary)}
        before_s = _processor_s(workers)
        wall_s = nap(pool, num_jobs, result_bytes=result_bytes)
        after_s = _processor_s(workers)
    head_s, engine_s = (late - early for early, late in zip(before_s, after_s, strict=True))
    costs_s = {"wall": wall_s, "head": head_s, "engine": engine_s}
    return {name: 1e3 * spent_s / num_jobs for name, spent_s in costs_s.items()}


def _processor_s(workers: set[int]) -> tuple[float, float]:
    """Return the processor time of this process, and that of its children but the workers."""
    engine_s = 0.0
    for process in psutil.Process().children(recursive=True):
        if process.pid not in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                engine_s += sum(process.cpu_times()[:2])
    return time.process_time(), engine_s


def recoveries_s(collect: Collect, num_losses: int, generator: np.random.Generator) -> list[float]:
    """Kill workers at random moments; return how long each job waited for its next worker.

    Args:
      collect: what the pool is; with several workers, all are busy all the time.
      num_losses: how many workers are killed, one after another.
      generator: draws the moments and the workers.
    """
    with opened(collect) as (pool, diary):
        waited_s: list[float] = []
        while len(waited_s) < num_losses:
            waited_s += _recovery_s(pool, diary, generator)
        return waited_s


def _recovery_s(pool: NapPool, diary: pathlib.Path, generator: np.random.Generator) -> list[float]:
    """Run one long job in each worker, kill one of them, and return how long its job waited.

    Nothing is returned if the job was done before its worker was killed.
    """
    num_before = len(read_diary(diary))
    killed: list[tuple[int, float]] = []
    wait_s = _BEFORE_KILL_S + generator.uniform(0, 1)
    victim = int(generator.integers(pool.num_workers))

    def kill() -> None:
        while len(attempts := read_diary(diary)[num_before:]) < pool.num_workers:
            time.sleep(_TICK_S)
        time.sleep(wait_s)
        killed.append((attempts[victim].number, time.monotonic()))
        os.kill(attempts[victim].pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    # No other worker is free before the lost one has been replaced, if that takes less than this.
    nap(pool, pool.num_workers, seconds=wait_s + 2.0)
    thread.join()
    number, killed_s = killed[0]
    attempts = [late for late in read_diary(diary)[num_before:] if late.number == number]
    return [late.at_s - killed_s for late in attempts[1:2]]


_OVERHEADS = {
    "wall": "between two jobs",
    "head": "processor time of the head",
    "engine": "processor time of Ray's own processes",
}


def _costs(records: Any) -> Iterator[Record]:
    for record in records:
        kind = record["kind"]
        if "what" in record:
            yield record
        for name, text in _OVERHEADS.items():
            if name in record:
                what = f"{text}, results of {record['result_bytes']:,} bytes, ms a job"
                yield {"kind": kind, "what": what, "figure": record[name]}
        for waited_s in record.get("waited_s", ()):
            what = "until a lost worker's job is at work again, s"
            yield {"kind": kind, "what": what, "figure": waited_s}


POOLS = Study(
    """How collection scales: what pools cost for a job, and what a lost worker costs.

Sleeping jobs stand for environments, so that many workers fit on a few cores.""",
    Pools,
    _trials,
    measure,
    [
        Table(
            "What pools cost. Median (range).",
            ("what",), {"": median("figure")}, across="kind", derive=_costs,
        ),
        Table(
            "Share of the workers' time that went into jobs of 0.2 s.",
            ("workers",),
            {"": first("share", "{:.3f}")},
            across="kind",
            derive=lambda records: [record for record in records if "share" in record],
            label="workers",
        ),
    ],
    is_alone=True,
)  # fmt: skip
