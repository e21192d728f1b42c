"""How collection scales: what pools cost for a job, and what a lost worker or node costs."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import psutil

from environments.errors import Failure
from tfrl_systems.drivers.collect import Collect, Supervision, make_pool, shared
from tfrl_systems.drivers.jobs import Pool, PoolError
from tfrl_systems.settings import option
from tools.studies.sleeping import Attempt, MakeSleeper, Nap, read_diary
from tools.studies.study import Record, Study, Table, Trial, first, median

NapPool = Pool[Nap, bytes]
LoseFn = Callable[[Attempt], None]

_SUPERVISION = Supervision(max_attempts=20, start_timeout_s=600)
_SLEEP_S = 0.2
_JOBS_PER_WORKER = 10
# How long a worker that is to be killed has been at its job already, at least.
_BEFORE_KILL_S = 0.2
_TICK_S = 0.02
_STORE_BYTES = 100 << 20
_RAY_VARIABLES = {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pools:
    """How large the pools are, and how much they lose.

    Attributes:
      kinds: pipes or ray; may be repeated.
      most_workers: measured are 1, 2, 4, … workers, up to so many.
      losses: workers to kill.
      node_losses: nodes of a Ray cluster on this machine to kill.
      naps: jobs to average.
      seed: decides when workers are lost.
    """

    kinds: tuple[str, ...] = option(
        ("pipes", "ray"), flag="--collect", metavar="KIND", choices=("pipes", "ray")
    )
    most_workers: int = option(32, metavar="N", minimum=1)
    losses: int = option(20, metavar="N", minimum=0)
    node_losses: int = option(5, metavar="N", minimum=0)
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
        nodes = options.node_losses if kind == "ray" else 0
        for lost, losses in (("worker", options.losses), ("node", nodes)):
            if losses:
                about = {"measure": "recovery", "lost": lost, "losses": losses}
                yield Trial(f"{kind}-lost-{lost}", {**shared_by_all, **about})


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
    if about["lost"] == "worker":
        return {"waited_s": recoveries_s(Collect(kind, 2), about["losses"], generator)}
    # As many nodes wait for a worker as are lost.
    with _cluster(2 + about["losses"]) as address:
        collect = Collect("ray", 2, address)
        return {"waited_s": recoveries_s(collect, about["losses"], generator, _lose_node)}


@contextlib.contextmanager
def opened(collect: Collect) -> Iterator[tuple[NapPool, pathlib.Path]]:
    """Give a pool whose first workers have started, and the diary of all attempts at its jobs."""
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


def kill(begun: Attempt) -> None:
    """Kill the worker that has begun a job."""
    os.kill(begun.pid, signal.SIGKILL)


def recoveries_s(
    collect: Collect, num_losses: int, generator: np.random.Generator, lose_fn: LoseFn = kill
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
    pool: NapPool, diary: pathlib.Path, generator: np.random.Generator, lose_fn: LoseFn
) -> list[float]:
    """Run one long job in each worker, lose one of them, and return how long its job waited.

    Nothing is returned if the job was done before its worker was lost.
    """
    num_before = len(read_diary(diary))
    lost: list[tuple[Attempt, float]] = []
    wait_s = _BEFORE_KILL_S + generator.uniform(0, 1)
    victim = int(generator.integers(pool.num_workers))

    def lose() -> None:
        while len(attempts := read_diary(diary)[num_before:]) < pool.num_workers:
            time.sleep(_TICK_S)
        time.sleep(wait_s)
        lost.append((attempts[victim], time.monotonic()))
        lose_fn(attempts[victim])

    thread = threading.Thread(target=lose)
    thread.start()
    # No other worker is free before the lost one has been replaced, if that takes less than this.
    nap(pool, pool.num_workers, seconds=wait_s + 2.0)
    thread.join()
    begun, lost_s = lost[0]
    attempts = [late for late in read_diary(diary)[num_before:] if late.number == begun.number]
    return [late.at_s - lost_s for late in attempts[1:2]]


def _lose_node(begun: Attempt) -> None:
    """Lose the node where a job has begun: its raylet, which is the worker's parent, and itself."""
    raylet = psutil.Process(begun.pid).parent()
    assert raylet is not None
    raylet.kill()
    with contextlib.suppress(ProcessLookupError):
        kill(begun)


@contextlib.contextmanager
def _cluster(num_nodes: int) -> Iterator[str]:
    """Give the address of a cluster with nodes of one processor each."""
    from ray.cluster_utils import Cluster

    with mock.patch.dict(os.environ, _RAY_VARIABLES):
        cluster = Cluster()
        cluster.add_node(num_cpus=0, object_store_memory=_STORE_BYTES, include_dashboard=False)
        try:
            for _ in range(num_nodes):
                cluster.add_node(num_cpus=1, object_store_memory=_STORE_BYTES)
            with shared(Collect("ray", address=cluster.address)):
                yield cluster.address
        finally:
            cluster.shutdown()


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
            what = f"until a lost {record['lost']}'s job is at work again, s"
            yield {"kind": kind, "what": what, "figure": waited_s}


POOLS = Study(
    """How collection scales: what pools cost for a job, and what a lost worker or node costs.

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
    # Ray reads once in each process how the nodes of a cluster know each other.
    is_alone=True,
)  # fmt: skip
