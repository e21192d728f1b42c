"""A pool without worker processes: it runs one job after another, with the same results."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Iterable, Iterator
from typing import Any, Generic

import threadpoolctl

from environments.errors import Failure, UserError, one_line
from tfrl_systems.drivers.collect import Collect, Supervision
from tfrl_systems.drivers.jobs import (
    Job,
    MakeRunner,
    OnResult,
    PoolError,
    Result,
    Timings,
    WorkerTimings,
)
from tfrl_systems.drivers.pool_parts import JobQueue, RestartingRunner, check_loaded, check_open
from tfrl_systems.drivers.requirements import Requirements


class InProcessPool(Generic[Job, Result]):
    """Runs jobs in this process (`jobs.Pool`).

    If a job hangs, so does the caller: a pool can only give up a job in another process.

    BLAS uses one thread while a runner works, as in a worker. More threads would change the last
    bits of large products.

    Args:
      make_runner: makes the runner, and makes it anew after a job failed.
      collect: where jobs run: one worker, no address.
      supervision: says how often a job is tried; its other fields are for pools with processes.
      requirements: what the runner needs; this machine has it, or the runner says what is missing.

    Raises:
      PoolError: the runner cannot be made.
      UserError: the runner cannot be made, and the user can mend the cause; or `collect` asks for
        more than one worker or for an address.
    """

    num_workers = 1

    def __init__(
        self,
        make_runner: MakeRunner[Job, Result],
        collect: Collect,
        supervision: Supervision,
        requirements: Requirements = Requirements(),
    ) -> None:
        if collect.workers > 1 or collect.address:
            raise UserError(
                "collect: expected one worker and no address in this process, found "
                f"{collect.workers} and {collect.address!r}; collect with pipes"
            )
        with _as_pool_error("workers"):
            self._runner = RestartingRunner(make_runner)
        self._max_attempts = supervision.max_attempts
        self._version = 0
        self._load_error = ""
        self._is_open = True
        self._broadcasting_s = self._waiting_s = 0.0
        self._worker = WorkerTimings()
        controller = threadpoolctl.ThreadpoolController().select(user_api="blas")
        self._blas = controller.lib_controllers

    @property
    def timings(self) -> Timings:
        """Return the time that the pool has spent so far."""
        return Timings(self._broadcasting_s, self._waiting_s, (self._worker,))

    def broadcast(self, data: Any) -> None:
        """Have the runner load `data`; see `jobs.Pool`."""
        check_open(self._is_open)
        began_s = time.perf_counter()
        self._version += 1
        self._load_error = "interrupted"
        try:
            with _as_pool_error("broadcast"):
                self._runner.load(data, self._version)
        except Exception as error:
            self._load_error = str(error)
            raise
        finally:
            self._broadcasting_s += time.perf_counter() - began_s
        self._load_error = ""

    def map(
        self, jobs: Iterable[Job], on_result: OnResult[Result] | None = None
    ) -> list[Result | Failure]:
        """Run every job; see `jobs.Pool`."""
        check_open(self._is_open)
        check_loaded(self._load_error)
        began_s = time.perf_counter()
        queue = JobQueue[Job, Result](jobs, self._max_attempts, on_result)
        try:
            with self._one_blas_thread():
                while queue.waiting:
                    self._run(queue, queue.waiting.popleft())
        finally:
            self._waiting_s += time.perf_counter() - began_s
        return queue.results

    def _run(self, queue: JobQueue[Job, Result], number: int) -> None:
        began_s = time.perf_counter()
        try:
            result = self._runner.run(queue.jobs[number], self._version)
        except Exception as error:
            queue.fail(number, one_line(error), traceback.format_exc())
        else:
            self._worker += WorkerTimings(1, time.perf_counter() - began_s)
            queue.finish(number, result)

    @contextlib.contextmanager
    def _one_blas_thread(self) -> Iterator[None]:
        """Do the same as `threadpoolctl.threadpool_limits`, which takes longer to set up."""
        before = [library.get_num_threads() for library in self._blas]
        try:
            for library in self._blas:
                library.set_num_threads(1)
            yield
        finally:
            for library, num_threads in zip(self._blas, before, strict=True):
                library.set_num_threads(num_threads)

    def close(self) -> None:
        """Close the runner. May be called more than once."""
        self._is_open = False
        self._runner.close()

    def __enter__(self) -> InProcessPool[Job, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def _as_pool_error(where: str) -> Iterator[None]:
    """Turn an exception that is no UserError into a PoolError, as other pools do."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise PoolError(f"{where}: {one_line(error)}") from error
