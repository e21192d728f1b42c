"""What callers, pools and runners have in common.

A `Pool` runs jobs on `Runner`s. A result depends only on its job and on the data that were
broadcast last, never on which runner ran the job or what that runner did before. So results are
the same for one worker and for 64, in this process and in others, and after a worker was killed
and its job was run again.

This module imports neither TensorFlow nor an environment, because workers need not have them.
"""

from __future__ import annotations

import abc
import dataclasses
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from environments.errors import Failure, UserError

Job = TypeVar("Job")
Result = TypeVar("Result")
JobIn = TypeVar("JobIn", contravariant=True)
ResultOut = TypeVar("ResultOut", covariant=True)

_log = logging.getLogger(__name__)


class PoolError(UserError):
    """Raised when a pool cannot go on: no runner starts, or data do not load."""


@dataclasses.dataclass(frozen=True)
class Chunk:
    """The unit of collection: a fixed number of episodes.

    Attributes:
      iteration: number of the training iteration.
      index: number of the chunk in its iteration.
      seed: seed of the run.
      num_earlier: number of chunks in the iterations before.
    """

    iteration: int
    index: int
    seed: int = 0
    num_earlier: int = 0

    @property
    def number(self) -> int:
        """Return the number of the chunk in its run, by which environments take turns."""
        return self.num_earlier + self.index

    def seed_sequence(self) -> np.random.SeedSequence:
        """Return the seed of all randomness in the chunk: contexts, action noise, exploration."""
        return np.random.SeedSequence([self.seed, self.iteration, self.index])

    def __str__(self) -> str:
        return f"chunk {self.index} of iteration {self.iteration}, seed {self.seed}"


class Runner(Protocol[JobIn, ResultOut]):
    """Runs jobs; each worker has its own runner."""

    def load(self, data: Any) -> object:
        """Load broadcast data, such as a policy's variables; on an error, keep the old data."""

    def run(self, job: JobIn) -> ResultOut:
        """Run one job; the result is a function of the job and of the data that were loaded."""

    def close(self) -> None:
        """Release all resources. Nothing is called afterwards."""


MakeRunner = Callable[[], Runner[Job, Result]]


OnResult = Callable[[int, Result | Failure], None]
"""(number of the job, its result) -> None; what it raises ends the call of `map`."""


@dataclasses.dataclass(frozen=True)
class WorkerTimings:
    """The work so far of one worker and of those that replaced it.

    Attributes:
      jobs: number of finished jobs.
      collecting_s: time spent on these jobs, in seconds of wall time.
    """

    jobs: int = 0
    collecting_s: float = 0.0

    @property
    def jobs_per_s(self) -> float:
        """Return the jobs finished per second of work; 0 before the first."""
        return self.jobs / self.collecting_s if self.collecting_s else 0.0

    def __add__(self, more: WorkerTimings) -> WorkerTimings:
        return WorkerTimings(self.jobs + more.jobs, self.collecting_s + more.collecting_s)

    def __sub__(self, earlier: WorkerTimings) -> WorkerTimings:
        return WorkerTimings(self.jobs - earlier.jobs, self.collecting_s - earlier.collecting_s)


@dataclasses.dataclass(frozen=True)
class Timings:
    """The time that a pool has spent since it was made.

    Subtract earlier timings to get the time spent since then. In Algorithm 4.1 of Mayer's thesis
    `broadcasting_s` is t_broadcasting, and `waiting_s` t_collecting. There broadcasting ends when
    the data are sent, so that on busy processors it hides work (6.1); here when they are loaded.

    Attributes:
      broadcasting_s: time in `broadcast`, until every worker had loaded the data, in seconds of
        wall time.
      waiting_s: time in `map`, until the last result had arrived, in seconds of wall time.
      workers: timings of each worker.
    """

    broadcasting_s: float
    waiting_s: float
    workers: tuple[WorkerTimings, ...]

    @property
    def collecting_s(self) -> float:
        """Return the seconds of work of all workers together, as measured in the workers."""
        return sum(worker.collecting_s for worker in self.workers)

    def __sub__(self, earlier: Timings) -> Timings:
        pairs = zip(self.workers, earlier.workers, strict=True)
        return Timings(
            self.broadcasting_s - earlier.broadcasting_s,
            self.waiting_s - earlier.waiting_s,
            tuple(mine - theirs for mine, theirs in pairs),
        )


class JobQueue(Generic[Job, Result]):
    """The jobs of one call of `map`, known by their numbers, and their results.

    Args:
      jobs: the jobs, in the order in which their results are wanted.
      max_attempts: how often a job is tried.
      on_result: called with each result as soon as it arrives.

    Attributes:
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


class Pool(abc.ABC, Generic[Job, Result]):
    """Runs jobs on runners. Only one thread may use it at a time.

    As a context manager, it closes itself.
    """

    def __init__(self, num_workers: int, max_attempts: int) -> None:
        self._max_attempts = max_attempts
        self._timings = [WorkerTimings()] * num_workers
        self._broadcasting_s = self._waiting_s = 0.0
        self._version = 0
        self._load_error = ""
        self._is_open = True

    @property
    def num_workers(self) -> int:
        """Return the number of jobs that run at the same time."""
        return len(self._timings)

    @property
    def timings(self) -> Timings:
        """Return the time that the pool has spent so far, except for the workers' first start."""
        return Timings(self._broadcasting_s, self._waiting_s, tuple(self._timings))

    def broadcast(self, data: Any) -> None:
        """Have every runner load `data`; return when all have loaded it.

        Data are anything that can be pickled, such as a policy's variables in bytes. They must not
        be changed afterwards, because runners that are made later load them too.

        Raises:
          PoolError: the data do not load. No job runs until other data are loaded.
        """
        self._begin()
        began_s = time.perf_counter()
        self._version += 1
        self._load_error = "interrupted"
        try:
            self._load(data)
            self._load_error = ""
        except UserError as error:
            self._load_error = str(error)
            raise
        finally:
            self._broadcasting_s += time.perf_counter() - began_s

    def map(
        self, jobs: Iterable[Job], on_result: OnResult[Result] | None = None
    ) -> list[Result | Failure]:
        """Run every job.

        Args:
          jobs: the jobs to run; `str` of a job is its name in messages.
          on_result: called with each result as soon as it arrives, in any order.

        Returns:
          One result for each job, in the order of `jobs`; a `Failure` for a job that failed every
          time it was tried.

        Raises:
          PoolError: no job can run, because runners do not start or the last broadcast failed.
        """
        self._begin()
        if self._load_error:
            raise PoolError(
                "map: expected runners with the data of the last broadcast, found that it failed "
                f"({self._load_error}); broadcast data that they can load"
            )
        began_s = time.perf_counter()
        queue = JobQueue[Job, Result](jobs, self._max_attempts, on_result)
        try:
            self._run(queue)
        finally:
            self._waiting_s += time.perf_counter() - began_s
        return queue.results

    def close(self) -> None:
        """End the runners, even those at work. May be called more than once."""
        self._is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        """Have all runners made; raise a PoolError if the pool was closed."""
        if not self._is_open:
            raise PoolError("pool: expected an open one, found it closed; make another")

    @abc.abstractmethod
    def _load(self, data: Any) -> None:
        """Have every runner load the data of `_version`."""

    @abc.abstractmethod
    def _run(self, queue: JobQueue[Job, Result]) -> None:
        """Run jobs until no result is missing."""
