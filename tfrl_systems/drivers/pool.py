"""A pool of worker processes that outlives what goes wrong in them.

A worker that dies, or takes longer for a job than it may, is killed and replaced, and its job is
done again by whoever is free. A spare, started in advance, takes its place at once. The parent is
one loop over the workers' sockets, without threads, and never waits for a single worker.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Generic

from environments.errors import UserError
from tfrl_systems.drivers.jobs import (
    Job,
    JobFailure,
    MakeRunner,
    OnResult,
    PoolError,
    Result,
    Timings,
    WorkerTimings,
    check_loaded,
    check_open,
)
from tfrl_systems.drivers.wire import Frame, Kind, Trouble, pickled, unpickled
from tfrl_systems.drivers.work import Work
from tfrl_systems.drivers.worker_process import WorkerProcess

_log = logging.getLogger(__name__)

# How long idle workers may take to close their runners when the pool is closed.
_CLOSE_TIMEOUT_S = 3.0
# Jobs so short that the time to hand out the next one, 1 to 3 ms on busy cores, matters.
_SHORT_S = 0.2


class DriverPool(Generic[Job, Result]):
    """Runs jobs in worker processes (`jobs.Pool`).

    The constructor starts the workers and does not wait for them; the first `broadcast` or `map`
    does, and raises what went wrong in them. They import neither the caller's script nor
    TensorFlow, unless the runner does. However this process ends, they end too.

    Args:
      make_runner: makes a worker's runner, in the worker. It travels by cloudpickle, so it may be a
        function of a notebook; it must not carry objects of TensorFlow.
      num_workers: jobs that run at the same time.
      timeout_s: a worker that takes longer for one job, or to load data, is killed and replaced.
      start_timeout_s: how long a worker may take to start.
      max_attempts: how often a job is tried, and how often in a row a replacement is started.
      stop_on_failure: raises `PoolError` at the first job that failed every time, instead of
        returning a `JobFailure` in its place and going on.
      num_spares: workers that wait to take another's place. Without one, a place is empty for as
        long as a worker takes to start.

    Raises:
      UserError: there are to be no workers.
    """

    def __init__(
        self,
        make_runner: MakeRunner[Job, Result],
        num_workers: int = 2,
        *,
        timeout_s: float = 300.0,
        start_timeout_s: float = 120.0,
        max_attempts: int = 3,
        stop_on_failure: bool = False,
        num_spares: int = 1,
    ) -> None:
        if num_workers < 1:
            raise UserError(
                f"workers: expected 1 or more, found {num_workers}; give another number"
            )
        self._make_runner_pickled = pickled(make_runner)
        self._timeout_s = timeout_s
        self._start_timeout_s = start_timeout_s
        self._max_attempts = max_attempts
        self._stop_on_failure = stop_on_failure
        self._num_spares = num_spares
        self._timings = [WorkerTimings()] * num_workers
        self._broadcasting_s = self._waiting_s = 0.0
        self._version = 0
        self._data = b""
        self._load_error = ""
        self._is_broadcasting = False
        self._refusals: list[Trouble] = []
        self._has_started = False
        self._failed_starts = 0
        self._jobs_are_short = False
        self._work: Work[Job, Result] | None = None
        self._selector = selectors.DefaultSelector()
        # By place; a place without a worker gets one as soon as the pool is used.
        self._crew: dict[int, WorkerProcess] = {}
        self._spares: list[WorkerProcess] = []
        # At the end of this process, or of the pool: it must not hold the pool itself.
        self._kill = weakref.finalize(self, _kill, os.getpid(), self._crew, self._spares)
        self._man()

    @property
    def num_workers(self) -> int:
        """Jobs that run at the same time."""
        return len(self._timings)

    @property
    def timings(self) -> Timings:
        """Where the time went so far, but for the workers' first start."""
        return Timings(self._broadcasting_s, self._waiting_s, tuple(self._timings))

    def wait_until_started(self) -> None:
        """Returns when every worker has made its runner; later calls do nothing.

        Raises:
          PoolError: one cannot; the pool is closed.
          UserError: the same, and the user can mend it.
        """
        check_open(self._kill.alive)
        if self._has_started:
            return
        try:
            while not all(worker.is_ready for worker in self._crew.values()):
                self._turn()
            self._man()
        except BaseException:
            self.close()
            raise
        self._has_started = True

    def broadcast(self, data: bytes) -> None:
        """Has every worker load `data` (`jobs.Pool`). Those still to come load it when they do."""
        self.wait_until_started()
        began_s = time.perf_counter()
        self._version += 1
        self._data = bytes(data)
        self._load_error = "interrupted"
        self._refusals.clear()
        self._is_broadcasting = True
        try:
            self._turn_until(
                lambda: all(
                    worker.version == self._version or not worker.is_ready
                    for worker in self._crew.values()
                )
            )
        finally:
            self._is_broadcasting = False
            self._broadcasting_s += time.perf_counter() - began_s
        self._load_error = self._refusals[0].message if self._refusals else ""
        if self._refusals:
            raise _error_of("broadcast", self._refusals[0])

    def map(
        self, jobs: Iterable[Job], on_result: OnResult[Result, Job] | None = None
    ) -> list[Result | JobFailure[Job]]:
        """Runs every job (`jobs.Pool`)."""
        self.wait_until_started()
        check_loaded(self._load_error)
        began_s = time.perf_counter()
        work = Work[Job, Result](jobs, self._max_attempts, self._stop_on_failure, on_result)
        self._work = work
        try:
            self._turn_until(lambda: not work.num_missing)
        finally:
            self._work = None
            self._waiting_s += time.perf_counter() - began_s
        return work.results

    def close(self) -> None:
        """Ends the workers: idle ones close their runners, the others are killed."""
        self._selector.close()
        try:
            asked = [worker for worker in self._workers() if worker.is_idle]
            for worker in asked:
                worker.say_goodbye()
            until_s = time.monotonic() + _CLOSE_TIMEOUT_S
            for worker in asked:
                worker.wait(until_s - time.monotonic())
        finally:
            self._kill()

    def __enter__(self) -> DriverPool[Job, Result]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _workers(self) -> list[WorkerProcess]:
        return [*self._crew.values(), *self._spares]

    def _turn_until(self, is_done_fn: Callable[[], bool]) -> None:
        """Deals with what happens until something holds.

        An exception, Ctrl-C among them, may come between any two bytes of a message: workers that
        are at anything are given up then, and the pool can be used again.
        """
        try:
            while not is_done_fn():
                self._turn()
            self._man()
        except BaseException:
            for worker in self._workers():
                if not (worker.is_idle and worker.channel.is_between_frames):
                    self._dismiss(worker)
            raise

    def _turn(self) -> None:
        """Gives everyone something to do, waits for the next thing that happens, deals with it."""
        self._man()
        self._feed()
        workers = self._workers()
        for worker in workers:
            events = selectors.EVENT_READ
            if worker.channel.has_unsent:
                events |= selectors.EVENT_WRITE
            if self._selector.get_key(worker.channel).events != events:
                self._selector.modify(worker.channel, events, worker)
        deadlines_s = [worker.deadline_s for worker in workers if worker.deadline_s is not None]
        now_s = time.monotonic()
        assert deadlines_s, "someone has something to do"
        for key, events in self._selector.select(max(min(deadlines_s) - now_s, 0)):
            self._serve(key.data, events)
        now_s = time.monotonic()
        for worker in self._workers():
            if worker.deadline_s is not None and worker.deadline_s < now_s:
                limit_s = self._timeout_s if worker.is_ready else self._start_timeout_s
                self._lose(worker, f"its worker took longer than {limit_s:g} s")

    def _serve(self, worker: WorkerProcess, events: int) -> None:
        frame, has_ended = None, False
        try:
            if events & selectors.EVENT_READ:
                frame = worker.channel.receive()
            if events & selectors.EVENT_WRITE:
                worker.channel.flush()
        except (EOFError, OSError):
            has_ended = True
        if frame is not None:
            self._take(worker, frame)
        if has_ended and not worker.is_gone:
            self._lose(worker, worker.how_it_ended())

    def _take(self, worker: WorkerProcess, frame: Frame) -> None:
        """Takes what a worker says."""
        job = worker.jobs[0] if worker.jobs else None
        worker.has_answered()
        if frame.kind == Kind.READY:
            worker.is_ready = True
            self._failed_starts *= self._version > 0  # else it has data to load first
        elif frame.kind == Kind.LOADED:
            worker.version = frame.number
            self._failed_starts = 0
        elif frame.kind == Kind.RESULT:
            assert job == frame.number and self._work is not None
            self._work.succeeded(job, unpickled(frame.payload))
            place = next(place for place, one in self._crew.items() if one is worker)
            self._timings[place] += WorkerTimings(1, frame.seconds)
            self._jobs_are_short = frame.seconds < _SHORT_S
        elif frame.kind == Kind.JOB_FAILED:
            assert job == frame.number and self._work is not None
            trouble = unpickled(frame.payload)
            self._work.failed(job, trouble.message, trouble.traceback)
        elif frame.kind == Kind.LOAD_FAILED and self._is_broadcasting:
            # All the others will say so too; the worker itself runs nothing of this version.
            worker.version = frame.number
            self._refusals.append(unpickled(frame.payload))
        else:
            self._lose(worker, "", unpickled(frame.payload))

    def _lose(self, worker: WorkerProcess, why: str, trouble: Trouble | None = None) -> None:
        """Gives up a worker that died, is late, or cannot make its runner or load the data.

        Raises:
          PoolError, UserError: it is no use to start another.
        """
        trouble = Trouble(why, "", False) if trouble is None else trouble
        is_spare = worker in self._spares
        self._dismiss(worker)
        if worker.jobs:
            assert self._work is not None
            begun, *untouched = worker.jobs
            self._work.returned(untouched)
            self._work.failed(begun, trouble.message)
            return
        _log.warning("%s", "\n".join(filter(None, (trouble.message, trouble.traceback.rstrip()))))
        if worker.is_idle and not trouble.traceback:
            return
        self._failed_starts += 1
        is_last = not self._has_started or self._failed_starts >= self._max_attempts
        if is_last and not is_spare:
            raise _error_of("workers", trouble)

    def _dismiss(self, worker: WorkerProcess) -> None:
        """Ends a worker and empties its place."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(worker.channel)
        worker.kill()
        for place, one in list(self._crew.items()):
            if one is worker:
                del self._crew[place]
        if worker in self._spares:
            self._spares.remove(worker)

    def _man(self) -> None:
        """Fills empty places, and then those of the spares."""
        for place in range(self.num_workers):
            if place not in self._crew:
                # One that is ready goes before one that is still to be.
                self._spares.sort(key=lambda spare: not spare.is_ready)
                self._crew[place] = self._spares.pop(0) if self._spares else self._start()
        if all(worker.is_ready for worker in self._crew.values()):
            while len(self._spares) < self._num_spares and not self._failed_starts:
                self._spares.append(self._start())

    def _start(self) -> WorkerProcess:
        worker = WorkerProcess(self._make_runner_pickled, self._start_timeout_s, self._timeout_s)
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        return worker

    def _feed(self) -> None:
        """Gives the workers what they lack: the data, a job, or the job after that.

        A worker has its next job in advance where jobs are short, so that it need not wait for
        this process; but not at the end, where another worker would be free before it.
        """
        for worker in self._crew.values():
            if worker.is_idle and worker.version != self._version:
                worker.load(self._data, self._version)
        if self._work is None:
            return
        queue = self._work.queue
        for num_jobs in range(1 + self._jobs_are_short):
            for worker in self._crew.values():
                is_able = worker.is_ready and worker.version == self._version
                is_wanted = len(queue) > num_jobs * self.num_workers
                if is_able and is_wanted and len(worker.jobs) == num_jobs:
                    job = queue.popleft()
                    worker.run(job, pickled(self._work.jobs[job]))


def _error_of(where: str, trouble: Trouble) -> Exception:
    return (
        UserError(trouble.message) if trouble.is_users else PoolError(f"{where}: {trouble.message}")
    )


def _kill(owner_pid: int, crew: dict[int, WorkerProcess], spares: list[WorkerProcess]) -> None:
    """Ends all workers, at once; a forked copy of their owner leaves them alone."""
    if os.getpid() == owner_pid:
        for worker in (*crew.values(), *spares):
            worker.kill()
        crew.clear()
        spares.clear()
