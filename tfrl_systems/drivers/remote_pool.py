"""What pools of workers in other processes have in common.

Such a pool has one loop over what its workers answer. `broadcast` and `map` say what is wanted, and
turn the loop (`_handle_next`) until it is there. Each kind of pool has workers of its own, and
decides by itself what becomes of a worker that is lost or late.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, Self

from environments.errors import Failure
from tfrl_systems.drivers.collect import Supervision
from tfrl_systems.drivers.jobs import Job, OnResult, Result, Timings, WorkerTimings
from tfrl_systems.drivers.pipes.messages import RemoteError, pickled
from tfrl_systems.drivers.pool_parts import JobQueue, check_loaded


class Handle(Protocol):
    """What a pool knows of a worker.

    Attributes:
      version: version of the data that it answered to last; 0 before the first.
    """

    version: int

    @property
    def is_ready(self) -> bool:
        """Return whether it has made its runner."""


class RemotePool(abc.ABC, Generic[Job, Result]):
    """Runs jobs on workers in other processes (`jobs.Pool`).

    Args:
      num_workers: number of jobs that run at the same time.
      supervision: what the pool does about workers and jobs that fail.
    """

    # Workers by place, 0 to num_workers - 1. Empty places are filled when the pool is used.
    _placed: Mapping[int, Handle]

    def __init__(self, num_workers: int, supervision: Supervision) -> None:
        self._supervision = supervision
        self._timings = [WorkerTimings()] * num_workers
        self._broadcasting_s = self._waiting_s = 0.0
        self._version = 0
        self._load_error = ""
        self._is_broadcasting = False
        self._refusals: list[RemoteError] = []
        self._has_started = False
        self._num_failed_starts = 0
        self._queue: JobQueue[Job, Result] | None = None

    @property
    def num_workers(self) -> int:
        """Return the number of jobs that run at the same time, if there is room for them."""
        return len(self._timings)

    @property
    def timings(self) -> Timings:
        """Return the time that the pool has spent so far, except for the workers' first start."""
        return Timings(self._broadcasting_s, self._waiting_s, tuple(self._timings))

    def wait_until_started(self) -> None:
        """Wait until every worker that can be had has made its runner; later calls do nothing.

        Raises:
          PoolError: a worker cannot make its runner; this closes the pool. Or it cannot be used any
            more.
          UserError: a worker cannot make its runner, and the user can mend the cause.
        """
        self._check_usable()
        if self._has_started:
            return
        try:
            while not self._are_all_started():
                self._handle_next()
            self._prepare()
        except BaseException:
            self.close()
            raise
        self._has_started = True

    def broadcast(self, data: Any) -> None:
        """Have every worker load `data`; see `jobs.Pool`. Later workers load it when they start."""
        self.wait_until_started()
        began_s = time.perf_counter()
        self._put(pickled(data))
        self._version += 1
        self._load_error = "interrupted"
        self._refusals.clear()
        self._is_broadcasting = True
        try:
            self._run_until(
                lambda: all(
                    worker.version == self._version or not worker.is_ready
                    for worker in self._placed.values()
                )
            )
        finally:
            self._is_broadcasting = False
            self._broadcasting_s += time.perf_counter() - began_s
        self._load_error = self._refusals[0].message if self._refusals else ""
        if self._refusals:
            raise self._refusals[0].exception("broadcast")

    def map(
        self, jobs: Iterable[Job], on_result: OnResult[Result] | None = None
    ) -> list[Result | Failure]:
        """Run every job; see `jobs.Pool`."""
        self.wait_until_started()
        check_loaded(self._load_error)
        began_s = time.perf_counter()
        queue = JobQueue[Job, Result](jobs, self._supervision.max_attempts, on_result)
        self._queue = queue
        try:
            self._run_until(lambda: not queue.num_missing)
        finally:
            self._queue = None
            self._waiting_s += time.perf_counter() - began_s
        return queue.results

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run_until(self, is_done_fn: Callable[[], bool]) -> None:
        """Handle what happens until `is_done_fn()` is true.

        After an exception, such as that of a Ctrl-C, workers that are at work are removed, and the
        pool can be used again.
        """
        try:
            while not is_done_fn():
                self._handle_next()
            self._prepare()
        except BaseException:
            self._remove_busy()
            raise

    @abc.abstractmethod
    def close(self) -> None:
        """End the workers: idle ones close their runners, the others are killed."""

    @abc.abstractmethod
    def _check_usable(self) -> None:
        """Raise a PoolError if the pool was closed, or has lost what it runs on."""

    @abc.abstractmethod
    def _are_all_started(self) -> bool:
        """Return whether enough workers have started."""

    @abc.abstractmethod
    def _put(self, data_pickled: bytes) -> None:
        """Store the data of a broadcast for present and later workers."""

    @abc.abstractmethod
    def _handle_next(self) -> None:
        """Give the workers something to do, wait until something happens, and handle it."""

    @abc.abstractmethod
    def _remove_busy(self) -> None:
        """Remove all workers whose state is not known after an exception."""

    def _prepare(self) -> None:
        """Start what the next call would have to wait for; nothing by default."""
