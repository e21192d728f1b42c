"""One thing done with many jobs: it is broadcast, and does not travel with each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from tfrl_systems.drivers.jobs import Job, Result
from tfrl_systems.drivers.wire import pickled, unpickled

JobIn = TypeVar("JobIn", contravariant=True)
ResultOut = TypeVar("ResultOut", covariant=True)


class Doer(Protocol[JobIn, ResultOut]):
    """Does tasks with jobs."""

    def run(self, task: Any, job: JobIn) -> ResultOut:
        """Does a task with a job: the result is a function of the two."""

    def close(self) -> None:
        """Lets go of what it holds. Nothing is called after it."""


class TaskRunner(Generic[Job, Result]):
    """Does the task that was broadcast last with each job (`jobs.Runner`).

    Args:
      make_doer: makes what does it.
    """

    def __init__(self, make_doer: Callable[[], Doer[Job, Result]]) -> None:
        self._doer = make_doer()
        self._task: Any = None

    def load(self, data: bytes) -> None:
        """Takes a task."""
        self._task = unpickled(data)

    def run(self, job: Job) -> Result:
        """Does it."""
        return self._doer.run(self._task, job)

    def close(self) -> None:
        """Lets go of what it holds."""
        self._doer.close()


def task_data(task: Any) -> bytes:
    """A task as it is broadcast to task runners."""
    return pickled(task)
