"""The interfaces of callers, pools and runners.

A `Pool` runs jobs on `Runner`s. A result depends only on its job and on the data that were
broadcast last, never on which runner ran the job or what that runner did before. So results are
the same for one worker and for 64, in this process and in others, and after a worker was killed
and its job was run again.

This module imports neither TensorFlow nor an environment, because workers need not have them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import numpy as np

from environments.errors import Failure, UserError

Job = TypeVar("Job")
Result = TypeVar("Result")
JobIn = TypeVar("JobIn", contravariant=True)
ResultOut = TypeVar("ResultOut", covariant=True)


class PoolError(UserError):
    """Raised when a pool cannot go on: no runner starts, or data do not load."""


@dataclasses.dataclass(frozen=True)
class Chunk:
    """The unit of collection: a fixed number of episodes.

    Attributes:
      iteration: number of the training iteration.
      index: number of the chunk in its iteration.
      seed: seed of the run.
    """

    iteration: int
    index: int
    seed: int = 0

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

    Subtract earlier timings to get the time spent since then.

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


class Pool(Protocol[Job, Result]):
    """Runs jobs on runners. Only one thread may use it at a time."""

    @property
    def num_workers(self) -> int:
        """Return the number of jobs that run at the same time."""

    @property
    def timings(self) -> Timings:
        """Return the time that the pool has spent so far."""

    def broadcast(self, data: Any) -> None:
        """Have every runner load `data`; return when all have loaded it.

        Args:
          data: anything that can be pickled, such as a policy's variables in bytes. It must not be
            changed afterwards, because runners that are made later load it too.

        Raises:
          PoolError: the data do not load. No job runs until other data are loaded.
        """

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

    def close(self) -> None:
        """End the runners, even those at work. May be called more than once."""

    def __enter__(self) -> Pool[Job, Result]:
        """Return the pool."""

    def __exit__(self, *_: object) -> None:
        """Close the pool."""
