"""Parts that pools share: a queue of jobs, and a runner that is replaced after a failure.

The caller's process has the `JobQueue`. The process that runs the jobs has the `RestartingRunner`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic

from environments.errors import Failure
from tfrl_systems.drivers.jobs import Job, MakeRunner, OnResult, PoolError, Result, Runner

_log = logging.getLogger(__name__)


class JobQueue(Generic[Job, Result]):
    """The jobs of one call of `map`, known by their numbers, and their results.

    Args:
      jobs: the jobs, in the order in which their results are wanted.
      max_attempts: how often a job is tried.
      on_result: called with each result as soon as it arrives.

    Attributes:
      jobs: the jobs.
      waiting: numbers of the jobs that no worker has, the next one first.
      results: the results in the order of the jobs; None for those still missing.
      num_missing: number of results still missing.
    """

    def __init__(
        self, jobs: Iterable[Job], max_attempts: int, on_result: OnResult[Result] | None
    ) -> None:
        self.jobs = list(jobs)
        self.waiting = deque(range(len(self.jobs)))
        self.results: list[Any] = [None] * len(self.jobs)
        self.num_missing = len(self.jobs)
        self._num_failed = [0] * len(self.jobs)
        self._max_attempts = max_attempts
        self._on_result = on_result

    def finish(self, number: int, result: Result | Failure) -> None:
        """Store the result of a job, and report it to `on_result`."""
        self.results[number] = result
        self.num_missing -= 1
        if self._on_result is not None:
            self._on_result(number, result)

    def put_back(self, numbers: Iterable[int]) -> None:
        """Put back jobs that a worker was given and did not begin; they come next."""
        self.waiting.extendleft(reversed(list(numbers)))

    def fail(self, number: int, why: str, traceback: str = "") -> None:
        """Put a failed job back as the next one; after its last attempt, store a `Failure`."""
        self._num_failed[number] += 1
        name = str(self.jobs[number])
        message = f"{name}: {why} (attempt {self._num_failed[number]} of {self._max_attempts})"
        _log.warning("%s%s", message, f"\n{traceback.rstrip()}" if traceback else "")
        if self._num_failed[number] < self._max_attempts:
            self.waiting.appendleft(number)
        else:
            self.finish(number, Failure(name, message))


class RestartingRunner(Generic[Job, Result]):
    """A runner that is replaced when a job fails in it, so that no trace of the job is left.

    Args:
      make_runner: makes the runner, at once and after each failure.
      unpack_fn: turns the broadcast data into what the runner loads; called for each runner.
    """

    def __init__(
        self,
        make_runner: MakeRunner[Job, Result],
        unpack_fn: Callable[[Any], Any] = lambda data: data,
    ) -> None:
        self._make_runner = make_runner
        self._unpack_fn = unpack_fn
        self._runner: Runner[Job, Result] | None = make_runner()
        self._version = 0
        self._data: Any = None

    def load(self, data: Any, version: int) -> None:
        """Load data. On an error the runner keeps its version."""
        self._ready_runner().load(self._unpack_fn(data))
        self._data, self._version = data, version

    def run(self, job: Job, version: int) -> Result:
        """Run a job that needs the data of `version`.

        Raises:
          RuntimeError: the runner has data of another version.
        """
        if version != self._version:
            raise RuntimeError(
                f"expected data of version {version} for the job, found version {self._version} "
                "in the runner; broadcast before jobs are sent"
            )
        try:
            return self._ready_runner().run(job)
        except BaseException:
            self._discard()
            raise

    def close(self) -> None:
        """Close the runner."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def _ready_runner(self) -> Runner[Job, Result]:
        if self._runner is None:
            self._runner = self._make_runner()
            if self._version:
                try:
                    self._runner.load(self._unpack_fn(self._data))
                except BaseException:
                    self._discard()
                    raise
        return self._runner

    def _discard(self) -> None:
        try:
            self.close()
        except Exception:
            _log.exception("a runner in which a job failed could not be closed")


def check_open(is_open: bool) -> None:
    """Refuse to use a pool that was closed.

    Raises:
      PoolError: the pool was closed.
    """
    if not is_open:
        raise PoolError("pool: expected an open one, found it closed; make another")


def check_loaded(load_error: str) -> None:
    """Refuse to run jobs if the last broadcast failed.

    Args:
      load_error: why the last broadcast failed; "" if it did not.

    Raises:
      PoolError: it failed, so runners hold older data than the caller believes.
    """
    if load_error:
        raise PoolError(
            f"map: expected runners with the data of the last broadcast, found that it failed "
            f"({load_error}); broadcast data that they can load"
        )
