"""What pools of workers in other processes have in common.

Such a pool has one loop over what its workers answer. `broadcast` and `map` say what is wanted, and
turn the loop (`_handle_next`) until it is there. Each kind of pool has workers of its own, and
decides by itself what becomes of a worker that does not start.
"""

from __future__ import annotations

import abc
import enum
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tfrl_systems.drivers.collect import Supervision
from tfrl_systems.drivers.jobs import Job, JobQueue, Pool, Result, WorkerTimings
from tfrl_systems.drivers.pipes.messages import RemoteError, pickled
from tfrl_systems.drivers.worker import Answer

_log = logging.getLogger(__name__)

# For jobs shorter than this, the time to hand out the next one matters: 1 to 3 ms on busy cores.
_SHORT_S = 0.2


class State(enum.Enum):
    """What a worker does."""

    WAITING = "waits for a place on a node"
    STARTING = "makes its runner"
    FETCHING = "copies files to its node"
    IDLE = "has nothing to do"
    LOADING = "loads data"
    RUNNING = "runs a job"


class Handle(abc.ABC):
    """A worker as its pool knows it: it answers the calls of `worker.Worker` in their order.

    Args:
      supervision: how long the worker may take.
      state: what it does at first.

    Attributes:
      state: what it does.
      version: version of the data that it answered to last; 0 before the first.
      jobs: numbers of the job that it is running and of those that it runs next.
      deadline_s: when it is late, on the clock of `time.monotonic`; None for no limit.
    """

    def __init__(self, supervision: Supervision, state: State) -> None:
        self._supervision = supervision
        self.state = state
        self.version = self._loading = 0
        self.jobs: deque[int] = deque()
        self.deadline_s: float | None = None

    @property
    def is_ready(self) -> bool:
        """Return whether it has made its runner."""
        return self.state in (State.IDLE, State.LOADING, State.RUNNING)

    @property
    def is_idle(self) -> bool:
        """Return whether it is ready and has nothing to do."""
        return self.state is State.IDLE

    @property
    def limit_s(self) -> float:
        """Return the seconds that it may take for what it does."""
        is_short = self.state in (State.WAITING, State.STARTING)
        return self._supervision.start_timeout_s if is_short else self._supervision.timeout_s

    def load(self, data: Any, version: int) -> None:
        """Have it load pickled data; it must be idle."""
        self._loading = version
        self._call(State.LOADING, "load", data, version)

    def run(self, number: int, job_pickled: bytes) -> None:
        """Have it run a job with its current data, after the jobs that it already has."""
        self.jobs.append(number)
        self._call(State.RUNNING, "run", job_pickled, self.version)

    def note_answer(self) -> tuple[State, int | None]:
        """Note that its oldest call was answered; return what it did, and for which job."""
        state = self.state
        job = self.jobs.popleft() if self.jobs else None
        if state is State.LOADING:
            # The pool may have broadcast a later version by now.
            self.version = self._loading
        self.state = State.RUNNING if self.jobs else State.IDLE
        self.deadline_s = time.monotonic() + self.limit_s if self.jobs else None
        return state, job

    def _call(self, state: State, method: str, *arguments: Any) -> None:
        self.state = state
        if self.deadline_s is None:
            self.deadline_s = time.monotonic() + self.limit_s
        self._send(method, *arguments)

    @abc.abstractmethod
    def _send(self, method: str, *arguments: Any) -> None:
        """Call a method of `worker.Worker` there."""

    @abc.abstractmethod
    def kill(self) -> None:
        """End the process, whatever it does. May be called more than once."""


class RemotePool(Pool[Job, Result]):
    """Runs jobs on workers in other processes."""

    # Workers by place, 0 to num_workers - 1. Empty places are filled when the pool is used.
    _placed: dict[int, Any]
    # What workers load, as `Handle.load` takes it.
    _data: Any = b""
    # How long the last job took, where a worker can get its next job in advance.
    _last_job_s = math.inf

    def __init__(self, num_workers: int, supervision: Supervision) -> None:
        super().__init__(num_workers, supervision.max_attempts)
        self._supervision = supervision
        self._is_broadcasting = False
        self._refusals: list[RemoteError] = []
        self._has_started = False
        self._num_failed_starts = 0
        self._queue: JobQueue[Job, Result] | None = None

    @property
    def workers(self) -> list[Any]:
        """Return the handles of the workers."""
        return list(self._placed.values())

    def _begin(self) -> None:
        super()._begin()
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

    def _load(self, data: Any) -> None:
        self._data = self._stored(pickled(data))
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
        if self._refusals:
            raise self._refusals[0].exception("broadcast")

    def _run(self, queue: JobQueue[Job, Result]) -> None:
        self._queue = queue
        try:
            self._run_until(lambda: not queue.num_missing)
        finally:
            self._queue = None

    def _run_until(self, is_done_fn: Callable[[], bool]) -> None:
        """Handle what happens until `is_done_fn()` is true.

        After an exception, such as that of a Ctrl-C, workers that are at work are removed, because
        nobody knows how far a message has come. The pool can be used again.
        """
        try:
            while not is_done_fn():
                self._handle_next()
            self._prepare()
        except BaseException:
            for worker in self.workers:
                if not worker.is_idle:
                    self._remove(worker)
            raise

    def _note_answer(self, worker: Handle, answer: Answer) -> None:
        """Handle what the oldest call of a worker came to."""
        state, job = worker.note_answer()
        if state is State.RUNNING:
            assert job is not None and self._queue is not None
            if not answer.is_error:
                self._timings[self._place_of(worker)] += WorkerTimings(1, answer.seconds)
                self._queue.finish(job, answer.value)
                return
            failed: RemoteError = answer.value
            self._queue.fail(job, failed.message, failed.traceback)
            if failed.is_out_of_memory:
                self._queue.put_back(worker.jobs)
                self._remove(worker)
        elif not answer.is_error:
            self._note_done(worker, state, answer)
        elif state is State.LOADING and self._is_broadcasting and not answer.value.is_out_of_memory:
            # The other workers will refuse the data too, so no job will run with this version.
            self._refusals.append(answer.value)
        else:
            self._note_failed_start(worker, state, answer.value)

    def _note_done(self, worker: Any, state: State, answer: Answer) -> None:
        """Handle that a worker has made its runner, or loaded data."""
        # A worker that has to load data too has not started yet.
        if worker.version == self._version:
            self._num_failed_starts = 0

    def _note_failed_start(self, worker: Any, state: State, error: RemoteError) -> None:
        """Handle that a worker cannot make its runner, or load the data."""
        self._give_up(worker, error, error.is_out_of_memory)

    def _give_up(self, worker: Handle, error: RemoteError, may_begin_again: bool) -> None:
        """Remove a worker that was lost, is late, or cannot make its runner or load the data.

        Args:
          worker: the worker.
          error: why it cannot go on.
          may_begin_again: whether another worker may start although none has so far.

        Raises:
          PoolError, UserError: there is no use in starting another worker.
        """
        place = self._place_of(worker)
        self._remove(worker)
        if worker.jobs:
            assert self._queue is not None
            begun, *untouched = worker.jobs
            self._queue.put_back(untouched)
            self._queue.fail(begun, error.message)
            return
        _log.warning("%s", "\n".join(filter(None, (error.message, error.traceback.rstrip()))))
        if worker.is_idle and not error.traceback:
            return
        self._num_failed_starts += 1
        is_first = not self._has_started and not may_begin_again
        if is_first or self._is_hopeless(place):
            raise error.exception("workers")

    def _give_up_late(self, may_begin_again: bool) -> None:
        """Give up workers that take too long; see `_give_up`."""
        now_s = time.monotonic()
        for worker in self.workers:
            if worker.deadline_s is not None and worker.deadline_s < now_s:
                why = f"its worker took longer than {worker.limit_s:g} s"
                self._give_up(worker, RemoteError(why), may_begin_again)

    def _place_of(self, worker: Handle) -> int:
        return next(place for place, occupant in self._placed.items() if occupant is worker)

    @abc.abstractmethod
    def _are_all_started(self) -> bool:
        """Return whether enough workers have started."""

    @abc.abstractmethod
    def _is_hopeless(self, place: int) -> bool:
        """Return whether there is no use in starting another worker for a place."""

    def _stored(self, data_pickled: bytes) -> Any:
        """Return the data of a broadcast as `Handle.load` takes them."""
        return data_pickled

    @abc.abstractmethod
    def _handle_next(self) -> None:
        """Give the workers something to do, wait until something happens, and handle it."""

    def _remove(self, worker: Any) -> None:
        """Kill a worker and empty its place."""
        worker.kill()
        del self._placed[self._place_of(worker)]

    def _assign(self) -> None:
        """Give the workers what they lack: the data, a job, or their next job in advance.

        If jobs are short, a worker gets its next job in advance, so that it need not wait for this
        process. The last jobs are not given in advance, because another worker may be free sooner.
        """
        for worker in self._placed.values():
            if worker.is_idle and worker.version != self._version:
                worker.load(self._data, self._version)
        if self._queue is None:
            return
        waiting = self._queue.waiting
        for num_jobs in range(2 if self._last_job_s < _SHORT_S else 1):
            for worker in self._placed.values():
                is_able = worker.is_ready and worker.version == self._version
                is_wanted = len(waiting) > num_jobs * self.num_workers
                if is_able and is_wanted and len(worker.jobs) == num_jobs:
                    job = waiting.popleft()
                    worker.run(job, pickled(self._queue.jobs[job]))

    def _prepare(self) -> None:
        """Start what the next call would have to wait for; nothing by default."""
