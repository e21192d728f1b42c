"""What callers, pools and runners agree on.

A `Pool` runs jobs on `Runner`s. A result depends on its job and on the data that were broadcast
last, never on which runner had it or what that one did before: so results are the same for one
worker and for 64, in this process and in others, and after a worker was killed and its job redone.

Neither TensorFlow nor an environment is imported here: workers need not have them.
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
    """A pool that cannot go on: no runner starts, or data do not load."""


@dataclasses.dataclass(frozen=True)
class Chunk:
    """The unit of learning's collection: a fixed number of episodes.

    Attributes:
      iteration: of the training.
      index: of the chunk in its iteration.
      seed: of the run.
    """

    iteration: int
    index: int
    seed: int = 0

    def seed_sequence(self) -> np.random.SeedSequence:
        """Decides all chance in the chunk: contexts, action noise, exploration."""
        return np.random.SeedSequence([self.seed, self.iteration, self.index])

    def __str__(self) -> str:
        return f"chunk {self.index} of iteration {self.iteration}, seed {self.seed}"


class Runner(Protocol[JobIn, ResultOut]):
    """Runs jobs; each worker has one of its own."""

    def load(self, data: Any) -> object:
        """Takes what was broadcast, such as a policy's variables; on an error, nothing of it."""

    def run(self, job: JobIn) -> ResultOut:
        """Does one job: its result is a function of the job and of the data that was loaded."""

    def close(self) -> None:
        """Lets go of what it holds. Nothing is called after it."""


MakeRunner = Callable[[], Runner[Job, Result]]


OnResult = Callable[[int, Result | Failure], None]
"""(number of the job, its result) -> None; what it raises ends the call of `map`."""


@dataclasses.dataclass(frozen=True)
class WorkerTimings:
    """What one worker, with all that replaced it, has done so far.

    Attributes:
      jobs: how many it finished.
      collecting_s: how long it worked on them, in seconds of wall time.
    """

    jobs: int = 0
    collecting_s: float = 0.0

    @property
    def jobs_per_s(self) -> float:
        """Throughput while it works."""
        return self.jobs / self.collecting_s if self.collecting_s else 0.0

    def __add__(self, other: WorkerTimings) -> WorkerTimings:
        return WorkerTimings(self.jobs + other.jobs, self.collecting_s + other.collecting_s)

    def __sub__(self, other: WorkerTimings) -> WorkerTimings:
        return WorkerTimings(self.jobs - other.jobs, self.collecting_s - other.collecting_s)


@dataclasses.dataclass(frozen=True)
class Timings:
    """Where a pool's time went since it was made; subtract an earlier one for that of a while.

    Attributes:
      broadcasting_s: until every worker had loaded what was broadcast, in seconds of wall time.
      waiting_s: in `map`, until the last result was there, in seconds of wall time.
      workers: of each worker.
    """

    broadcasting_s: float
    waiting_s: float
    workers: tuple[WorkerTimings, ...]

    @property
    def collecting_s(self) -> float:
        """Seconds that the workers worked, measured there, all workers together."""
        return sum(worker.collecting_s for worker in self.workers)

    def __sub__(self, other: Timings) -> Timings:
        pairs = zip(self.workers, other.workers, strict=True)
        return Timings(
            self.broadcasting_s - other.broadcasting_s,
            self.waiting_s - other.waiting_s,
            tuple(mine - theirs for mine, theirs in pairs),
        )


class Pool(Protocol[Job, Result]):
    """Runs jobs on runners. Not for several threads at once."""

    @property
    def num_workers(self) -> int:
        """Jobs that run at the same time."""

    @property
    def timings(self) -> Timings:
        """Where the time went so far."""

    def broadcast(self, data: Any) -> None:
        """Has every runner load `data`; returns when they have.

        Args:
          data: anything that can be pickled, such as a policy's variables in bytes. It must not be
            changed afterwards: a runner that is made later loads it too.

        Raises:
          PoolError: they do not load; no job runs until other data do.
        """

    def map(
        self, jobs: Iterable[Job], on_result: OnResult[Result] | None = None
    ) -> list[Result | Failure]:
        """Runs every job.

        Args:
          jobs: what to do; `str` of a job is its name in messages.
          on_result: told of each result as soon as it is there, in any order.

        Returns:
          One result for each job, in the order of `jobs`; for a job that failed every time, a
          `Failure`.

        Raises:
          PoolError: nothing can run: runners do not start, or the last broadcast failed.
        """

    def close(self) -> None:
        """Ends the runners, also those at work. May be called again."""

    def __enter__(self) -> Pool[Job, Result]:
        """The pool."""

    def __exit__(self, *_: object) -> None:
        """Closes it."""
