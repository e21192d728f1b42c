"""A pool of worker processes that survives their failures.

A worker that dies, or takes too long for a job, is killed and replaced, and the next free worker
runs its job again. A spare worker, started in advance, takes its place at once. The parent runs one
loop over the workers' sockets, without threads, and never waits for a single worker.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import time
import weakref

from environments.errors import UserError
from tfrl_systems.drivers.collect import Collect, Supervision
from tfrl_systems.drivers.jobs import Job, MakeRunner, Result, WorkerTimings
from tfrl_systems.drivers.pipes.messages import Kind, Message, RemoteError, pickled, unpickled
from tfrl_systems.drivers.pipes.worker_handle import WorkerHandle
from tfrl_systems.drivers.pool_parts import check_open
from tfrl_systems.drivers.remote_pool import RemotePool
from tfrl_systems.drivers.requirements import Requirements

_log = logging.getLogger(__name__)

# How long idle workers may take to close their runners when the pool is closed.
_CLOSE_TIMEOUT_S = 3.0
# For jobs shorter than this, the time to hand out the next one matters: 1 to 3 ms on busy cores.
_SHORT_S = 0.2


class PipePool(RemotePool[Job, Result]):
    """Runs jobs in worker processes (`jobs.Pool`).

    The constructor starts the workers and does not wait for them. The first `broadcast` or `map`
    waits, and raises the error of a worker that could not start. Workers import neither the
    caller's script nor TensorFlow, unless the runner does. However this process ends, they end too.

    Args:
      make_runner: makes a worker's runner, in the worker; see `collect.make_pool`.
      collect: says how many workers there are.
      supervision: what the pool does about workers and jobs that fail.
      requirements: what runners need; this machine has it, or they say what is missing.

    Raises:
      UserError: `collect` has an address.
    """

    def __init__(
        self,
        make_runner: MakeRunner[Job, Result],
        collect: Collect,
        supervision: Supervision,
        requirements: Requirements = Requirements(),
    ) -> None:
        if collect.address:
            raise UserError(
                f"collect: expected no address with pipes, found {collect.address!r}; leave it out"
            )
        super().__init__(collect.workers, supervision)
        self._make_runner_pickled = pickled(make_runner)
        self._data_pickled = b""
        self._jobs_are_short = False
        self._selector = selectors.DefaultSelector()
        self._placed: dict[int, WorkerHandle] = {}
        self._spares: list[WorkerHandle] = []
        # Called when this process or the pool ends; so it must not refer to the pool itself.
        self._kill_all = weakref.finalize(self, _kill_all, os.getpid(), self._placed, self._spares)
        self._fill_places()

    def close(self) -> None:
        """End the workers: idle ones close their runners, the others are killed."""
        self._selector.close()
        try:
            idle = [worker for worker in self.workers if worker.is_idle]
            for worker in idle:
                worker.ask_to_end()
            until_s = time.monotonic() + _CLOSE_TIMEOUT_S
            for worker in idle:
                worker.wait(until_s - time.monotonic())
        finally:
            self._kill_all()

    @property
    def workers(self) -> list[WorkerHandle]:
        """Return the workers; spares come last."""
        return [*self._placed.values(), *self._spares]

    def _check_usable(self) -> None:
        check_open(self._kill_all.alive)

    def _are_all_started(self) -> bool:
        workers = self._placed.values()
        return len(workers) == self.num_workers and all(worker.is_ready for worker in workers)

    def _put(self, data_pickled: bytes) -> None:
        self._data_pickled = data_pickled

    def _prepare(self) -> None:
        self._fill_places()

    def _remove_busy(self) -> None:
        # The exception may have come between any two bytes of a message.
        for worker in self.workers:
            if not (worker.is_idle and worker.channel.is_between_messages):
                self._remove(worker)

    def _handle_next(self) -> None:
        self._fill_places()
        self._assign()
        for worker in self.workers:
            events = selectors.EVENT_READ
            if worker.channel.has_unsent:
                events |= selectors.EVENT_WRITE
            if self._selector.get_key(worker.channel).events != events:
                self._selector.modify(worker.channel, events, worker)
        deadlines_s = [worker.deadline_s for worker in self.workers if worker.deadline_s]
        now_s = time.monotonic()
        assert deadlines_s, "someone has something to do"
        for key, events in self._selector.select(max(min(deadlines_s) - now_s, 0)):
            self._handle_socket(key.data, events)
        now_s = time.monotonic()
        for worker in self.workers:
            if worker.deadline_s is not None and worker.deadline_s < now_s:
                limits = self._supervision
                limit_s = limits.timeout_s if worker.is_ready else limits.start_timeout_s
                self._give_up(worker, f"its worker took longer than {limit_s:g} s")

    def _handle_socket(self, worker: WorkerHandle, events: int) -> None:
        message, has_ended = None, False
        try:
            if events & selectors.EVENT_READ:
                message = worker.channel.receive()
            if events & selectors.EVENT_WRITE:
                worker.channel.flush()
        except (EOFError, OSError):
            has_ended = True
        if message is not None:
            self._handle_message(worker, message)
        if has_ended and not worker.was_killed:
            self._give_up(worker, worker.explain_end(), may_begin_again=True)

    def _handle_message(self, worker: WorkerHandle, message: Message) -> None:
        """Handle a worker's message."""
        job = worker.jobs[0] if worker.jobs else None
        worker.note_answer()
        if message.kind == Kind.READY:
            worker.is_ready = True
            if not self._version:  # a worker that has to load data too has not started yet
                self._num_failed_starts = 0
        elif message.kind == Kind.LOADED:
            worker.version = message.number
            self._num_failed_starts = 0
        elif message.kind == Kind.RESULT:
            assert job == message.number and self._queue is not None
            self._queue.finish(job, unpickled(message.payload))
            place = next(place for place, occupant in self._placed.items() if occupant is worker)
            self._timings[place] += WorkerTimings(1, message.seconds)
            self._jobs_are_short = message.seconds < _SHORT_S
            self._num_failed_starts = 0
        elif message.kind == Kind.JOB_FAILED:
            assert job == message.number and self._queue is not None
            error = unpickled(message.payload)
            self._queue.fail(job, error.message, error.traceback)
            if error.is_out_of_memory:
                self._queue.put_back(worker.jobs)
                self._remove(worker)
        else:
            self._handle_failed_start(worker, message)

    def _handle_failed_start(self, worker: WorkerHandle, message: Message) -> None:
        """Handle the message of a worker that cannot make its runner or load the data."""
        error = unpickled(message.payload)
        is_refusal = message.kind == Kind.LOAD_FAILED and self._is_broadcasting
        if is_refusal and not error.is_out_of_memory:
            # The other workers will refuse the data too, so no job will run with this version.
            worker.version = message.number
            self._refusals.append(error)
        else:
            self._give_up(worker, "", error, may_begin_again=error.is_out_of_memory)

    def _give_up(
        self,
        worker: WorkerHandle,
        why: str,
        error: RemoteError | None = None,
        may_begin_again: bool = False,
    ) -> None:
        """Remove a worker that died, is late, or cannot make its runner or load the data.

        Args:
          worker: the worker.
          why: why it ended; "" if `error` says it.
          error: why it cannot go on.
          may_begin_again: whether another worker may start although none has so far.

        Raises:
          PoolError, UserError: there is no use in starting another worker.
        """
        error = RemoteError(why, "", False) if error is None else error
        is_spare = worker in self._spares
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
        # While others work, workers can start: somebody has killed this one.
        is_last = not any(occupant.is_ready for occupant in self._placed.values()) and (
            self._num_failed_starts >= self._supervision.max_attempts * self.num_workers
        )
        if (is_first or is_last) and not is_spare:
            raise error.exception("workers")

    def _remove(self, worker: WorkerHandle) -> None:
        """Kill a worker and empty its place."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(worker.channel)
        worker.kill()
        for place, occupant in list(self._placed.items()):
            if occupant is worker:
                del self._placed[place]
        if worker in self._spares:
            self._spares.remove(worker)

    def _fill_places(self) -> None:
        """Start missing workers, first for the empty places, then as spares."""
        for place in range(self.num_workers):
            if place not in self._placed:
                # Spares that are ready are taken first.
                self._spares.sort(key=lambda spare: not spare.is_ready)
                self._placed[place] = self._spares.pop(0) if self._spares else self._start()
        if all(worker.is_ready for worker in self._placed.values()):
            while len(self._spares) < self._supervision.num_spares and not self._num_failed_starts:
                self._spares.append(self._start())

    def _start(self) -> WorkerHandle:
        limits = self._supervision
        worker = WorkerHandle(self._make_runner_pickled, limits.start_timeout_s, limits.timeout_s)
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        return worker

    def _assign(self) -> None:
        """Give the workers what they lack: the data, a job, or their next job in advance.

        If jobs are short, a worker gets its next job in advance, so that it need not wait for this
        process. The last jobs are not given in advance, because another worker may be free sooner.
        """
        for worker in self._placed.values():
            if worker.is_idle and worker.version != self._version:
                worker.load(self._data_pickled, self._version)
        if self._queue is None:
            return
        waiting = self._queue.waiting
        for num_jobs in range(1 + self._jobs_are_short):
            for worker in self._placed.values():
                is_able = worker.is_ready and worker.version == self._version
                is_wanted = len(waiting) > num_jobs * self.num_workers
                if is_able and is_wanted and len(worker.jobs) == num_jobs:
                    job = waiting.popleft()
                    worker.run(job, pickled(self._queue.jobs[job]))


def _kill_all(owner_pid: int, placed: dict[int, WorkerHandle], spares: list[WorkerHandle]) -> None:
    """Kill all workers, unless this process is a forked copy of their owner."""
    if os.getpid() == owner_pid:
        for worker in (*placed.values(), *spares):
            worker.kill()
        placed.clear()
        spares.clear()
