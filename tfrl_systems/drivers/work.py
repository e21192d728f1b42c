"""The jobs of one call of `map`, as far as they have come."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import Any, Generic

from tfrl_systems.drivers.jobs import Job, JobFailure, OnResult, PoolError, Result

_log = logging.getLogger(__name__)


class Work(Generic[Job, Result]):
    """Jobs, known by their numbers, and what became of them.

    Args:
      jobs: in the order in which their results are wanted.
      max_attempts: how often a job is tried.
      stop_on_failure: whether a job that failed every time ends everything.
      on_result: told of each result as soon as it is there.

    Attributes:
      jobs: the jobs.
      queue: numbers of those that no one has, the next one first.
      results: in the order of the jobs; None where there is none yet.
      num_missing: how many there are not yet.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        max_attempts: int,
        stop_on_failure: bool,
        on_result: OnResult[Result, Job] | None,
    ) -> None:
        self.jobs = list(jobs)
        self.queue = deque(range(len(self.jobs)))
        self.results: list[Any] = [None] * len(self.jobs)
        self.num_missing = len(self.jobs)
        self._num_failed = [0] * len(self.jobs)
        self._max_attempts = max_attempts
        self._stop_on_failure = stop_on_failure
        self._on_result = on_result

    def succeeded(self, number: int, result: Result | JobFailure[Job]) -> None:
        """A job is done."""
        self.results[number] = result
        self.num_missing -= 1
        if self._on_result is not None:
            self._on_result(number, result)

    def returned(self, numbers: Iterable[int]) -> None:
        """Jobs were not begun."""
        self.queue.extendleft(reversed(list(numbers)))

    def failed(self, number: int, why: str, traceback: str = "") -> None:
        """A job is to be done again, next, or has failed for good.

        Raises:
          PoolError: it has, and that ends everything.
        """
        self._num_failed[number] += 1
        count = f"attempt {self._num_failed[number]} of {self._max_attempts}"
        message = f"{self.jobs[number]}: {why} ({count})"
        _log.warning("%s%s", message, f"\n{traceback.rstrip()}" if traceback else "")
        if self._num_failed[number] < self._max_attempts:
            self.queue.appendleft(number)
        elif self._stop_on_failure:
            raise PoolError(message)
        else:
            self.succeeded(number, JobFailure(self.jobs[number], message))
