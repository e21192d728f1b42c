"""A pool without worker processes: it runs one job after another, with the same results."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Iterator
from typing import Any

import threadpoolctl

from environments.errors import UserError, one_line
from tfrl_systems.drivers.collect import Collect, Supervision
from tfrl_systems.drivers.jobs import (
    Job,
    JobQueue,
    MakeRunner,
    Pool,
    PoolError,
    Result,
    WorkerTimings,
)
from tfrl_systems.drivers.requirements import Requirements
from tfrl_systems.drivers.worker import RestartingRunner


class InProcessPool(Pool[Job, Result]):
    """Runs jobs in this process (`jobs.Pool`).

    If a job hangs, so does the caller: a pool can only give up a job in another process.

    BLAS uses one thread while a runner works, as in a worker. More threads would change the last
    bits of large products.

    The arguments are those of `collect.make_pool`. Only `max_attempts` of `supervision` counts.
    What is required this machine has, or the runner says what is missing.

    Raises:
      PoolError: the runner cannot be made.
      UserError: the runner cannot be made, and the user can mend the cause; or `collect` asks for
        more than one worker or for an address.
    """

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
        super().__init__(1, supervision.max_attempts)
        with _as_pool_error("workers"):
            self._runner = RestartingRunner(make_runner)
        # Found once, because that takes longer than a short job.
        self._blas = threadpoolctl.ThreadpoolController().select(user_api="blas")

    def close(self) -> None:
        """Close the runner. May be called more than once."""
        super().close()
        self._runner.close()

    def _load(self, data: Any) -> None:
        with _as_pool_error("broadcast"):
            self._runner.load(data, self._version)

    def _run(self, queue: JobQueue[Job, Result]) -> None:
        with self._blas.limit(limits=1):
            while queue.waiting:
                number = queue.waiting.popleft()
                began_s = time.perf_counter()
                try:
                    result = self._runner.run(queue.jobs[number], self._version)
                except Exception as error:
                    queue.fail(number, one_line(error), traceback.format_exc())
                else:
                    self._timings[0] += WorkerTimings(1, time.perf_counter() - began_s)
                    queue.finish(number, result)


@contextlib.contextmanager
def _as_pool_error(where: str) -> Iterator[None]:
    """Turn an exception that is no UserError into a PoolError, as other pools do."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise PoolError(f"{where}: {one_line(error)}") from error
