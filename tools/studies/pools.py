"""How collection scales: what pools cost for a job, and how busy they keep their workers."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import psutil

from environments.errors import Failure
from tfrl_systems.drivers.collect import Collect, Supervision, make_pool
from tfrl_systems.drivers.jobs import Pool, PoolError
from tfrl_systems.settings import option
from tools.studies.study import Record, Records, Study, Table, Trial, first, median

_SUPERVISION = Supervision(max_attempts=20, start_timeout_s=600)
_SLEEP_S = 0.2
_JOBS_PER_WORKER = 10
_TICK_S = 0.02


class Nap(NamedTuple):
    """A job: its number, how long it sleeps, and how many bytes its result has beside."""

    number: int
    seconds: float = 0.0
    result_bytes: int = 0

    def __str__(self) -> str:
        return f"nap {self.number}"


Slept = tuple[int, bytes]
"""The worker's process, and zeros."""
NapPool = Pool[Nap, Slept]


class Sleeper:
    """Sleeps through each job, in place of an environment, so that many fit on a few cores."""

    def load(self, data: bytes) -> None:
        """Do nothing with it."""

    def run(self, nap: Nap) -> Slept:
        """Sleep; return which process did, and zeros."""
        time.sleep(nap.seconds)
        return os.getpid(), bytes(nap.result_bytes)

    def close(self) -> None:
        """Release nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pools:
    """How large the pools are.

    Attributes:
      kinds: pipes or ray; may be repeated.
      most_workers: measured are 1, 2, 4, … workers, up to so many.
      naps: jobs to average.
    """

    kinds: tuple[str, ...] = option(
        ("pipes", "ray"), flag="--collect", metavar="KIND", choices=("pipes", "ray")
    )
    most_workers: int = option(32, metavar="N", minimum=1)
    naps: int = option(500, metavar="N", minimum=1)


def _trials(options: Pools) -> Iterator[Trial]:
    counts = [1 << k for k in range(options.most_workers.bit_length())]
    for kind in options.kinds:
        yield Trial(f"{kind}-start", {"kind": kind, "measure": "start"})
        for size in (0, 100_000, 1_000_000):
            about = {"measure": "overhead", "result_bytes": size, "jobs": options.naps}
            yield Trial(f"{kind}-{size}-bytes", {"kind": kind, **about})
        for workers in counts:
            about = {"measure": "scaling", "workers": workers}
            yield Trial(f"{kind}-{workers}-workers", {"kind": kind, **about})


def measure(about: Record, _: pathlib.Path) -> Record:
    """Measure one thing of one kind of pool."""
    kind = about["kind"]
    if about["measure"] == "start":
        began_s = time.perf_counter()
        with opened(Collect(kind, 2)):
            return {"what": "start of 2 workers, s", "figure": time.perf_counter() - began_s}
    if about["measure"] == "overhead":
        return overhead(Collect(kind, 1), about["result_bytes"], about["jobs"])
    num_jobs = about["workers"] * _JOBS_PER_WORKER
    with all_at_work(Collect(kind, about["workers"])) as pool:
        began_s = time.perf_counter()
        nap(pool, num_jobs, _SLEEP_S)
        took_s = time.perf_counter() - began_s
    return {"share": num_jobs * _SLEEP_S / (about["workers"] * took_s)}


@contextlib.contextmanager
def opened(collect: Collect) -> Iterator[NapPool]:
    """Give a pool whose first workers have started."""
    pool: NapPool
    with make_pool(collect, Sleeper, _SUPERVISION) as pool:
        pool.broadcast(b"")
        yield pool


@contextlib.contextmanager
def all_at_work(collect: Collect) -> Iterator[NapPool]:
    """Give a pool of which each worker has had a job; a pool does not wait for late workers.

    Raises:
      PoolError: a worker has had none in the time that it may take to start.
    """
    with opened(collect) as pool:
        until_s, at_work = time.monotonic() + _SUPERVISION.start_timeout_s, set[int]()
        while len(at_work) < collect.workers:
            if time.monotonic() > until_s:
                raise PoolError(f"expected {collect.workers} workers, found {len(at_work)} at work")
            at_work |= nap(pool, collect.workers, seconds=_TICK_S)
        yield pool


def nap(pool: NapPool, num_jobs: int, seconds: float = 0.0, result_bytes: int = 0) -> set[int]:
    """Run jobs that sleep; return the processes that did.

    Raises:
      PoolError: a job failed.
    """
    workers = set()
    results: Sequence[Slept | Failure] = pool.map(
        [Nap(number, seconds, result_bytes) for number in range(num_jobs)]
    )
    for result in results:
        if isinstance(result, Failure):
            raise PoolError(result.message)
        workers.add(result[0])
    return workers


def overhead(collect: Collect, result_bytes: int, num_jobs: int) -> Record:
    """Return what a pool of one worker costs for each job that does nothing, in ms.

    `wall` is the time between two jobs, `head` the processor time of this process, and `engine`
    that of what runs beside it and the workers: Ray's own processes.
    """
    with opened(collect) as pool:
        workers = nap(pool, num_jobs, result_bytes=result_bytes)  # not counted
        before_s = _clocks_s(workers)
        nap(pool, num_jobs, result_bytes=result_bytes)
        after_s = _clocks_s(workers)
    return {name: 1e3 * (after_s[name] - before_s[name]) / num_jobs for name in before_s}


def _clocks_s(workers: set[int]) -> dict[str, float]:
    """Return the time, this process's processor time, and that of its children but the workers."""
    engine_s = 0.0
    for process in psutil.Process().children(recursive=True):
        if process.pid not in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                engine_s += sum(process.cpu_times()[:2])
    return {"wall": time.perf_counter(), "head": time.process_time(), "engine": engine_s}


_OVERHEADS = {
    "wall": "between two jobs",
    "head": "processor time of the head",
    "engine": "processor time of Ray's own processes",
}


def _costs(records: Records) -> Iterator[Record]:
    for record in records:
        if "what" in record:
            yield record
        for name, text in _OVERHEADS.items():
            if name in record:
                what = f"{text}, results of {record['result_bytes']:,} bytes, ms a job"
                yield {"kind": record["kind"], "what": what, "figure": record[name]}


POOLS = Study(
    """How collection scales: what pools cost for a job, and how busy they keep their workers.

Sleeping jobs stand for environments, so that many workers fit on a few cores.""",
    Pools,
    _trials,
    measure,
    [
        Table(
            "What pools cost. Median (range).",
            ("what",),
            {"": median("figure")},
            across="kind",
            derive=_costs,
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
)
