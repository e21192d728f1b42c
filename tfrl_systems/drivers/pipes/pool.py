"""A pool of worker processes that survives their failures.

A worker that dies, or takes too long for a job, is killed and replaced, and the next free worker
runs its job again. The parent runs one loop over the workers' sockets, without threads, and never
waits for a single worker.
"""

from __future__ import annotations

import math
import os
import select
import time
import weakref

from environments.errors import UserError
from tfrl_systems.drivers.collect import Collect, Supervision
from tfrl_systems.drivers.jobs import Job, MakeRunner, Result
from tfrl_systems.drivers.pipes.messages import RemoteError, pickled
from tfrl_systems.drivers.pipes.worker_handle import WorkerHandle
from tfrl_systems.drivers.remote_pool import RemotePool
from tfrl_systems.drivers.requirements import Requirements
from tfrl_systems.drivers.worker import Answer

# How long idle workers may take to close their runners when the pool is closed.
_CLOSE_TIMEOUT_S = 3.0


class PipePool(RemotePool[Job, Result]):
    """Runs jobs in worker processes (`jobs.Pool`).

    The constructor starts the workers and does not wait for them. The first `broadcast` or `map`
    waits, and raises the error of a worker that could not start. Workers import neither the
    caller's script nor TensorFlow, unless the runner does. However this process ends, they end too.

    The arguments are those of `collect.make_pool`. What is required this machine has, or the
    runners say what is missing.

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
        self._placed: dict[int, WorkerHandle] = {}
        # Called when this process or the pool ends; so it must not refer to the pool itself.
        self._kill_all = weakref.finalize(self, _kill_all, os.getpid(), self._placed)
        self._fill_places()

    def close(self) -> None:
        """End the workers: idle ones close their runners, the others are killed."""
        super().close()
        try:
            idle = [worker for worker in self.workers if worker.is_idle]
            for worker in idle:
                worker.ask_to_end()
            until_s = time.monotonic() + _CLOSE_TIMEOUT_S
            for worker in idle:
                worker.wait(until_s - time.monotonic())
        finally:
            self._kill_all()

    def _are_all_started(self) -> bool:
        workers = self._placed.values()
        return len(workers) == self.num_workers and all(worker.is_ready for worker in workers)

    def _prepare(self) -> None:
        self._fill_places()

    def _handle_next(self) -> None:
        self._fill_places()
        self._assign()
        poller = select.poll()
        for worker in self.workers:
            events = select.POLLIN | (select.POLLOUT if worker.channel.has_unsent else 0)
            poller.register(worker.channel, events)
        by_number = {worker.channel.fileno(): worker for worker in self.workers}
        deadlines_s = [worker.deadline_s for worker in self.workers if worker.deadline_s]
        assert deadlines_s, "someone has something to do"
        wait_s = max(min(deadlines_s) - time.monotonic(), 0)
        for number, events in poller.poll(math.ceil(1e3 * wait_s)):
            self._handle_socket(by_number[number], events)
        self._give_up_late(may_begin_again=False)

    def _handle_socket(self, worker: WorkerHandle, events: int) -> None:
        message, has_ended = None, False
        try:
            if events & ~select.POLLOUT:
                message = worker.channel.receive()
            if events & select.POLLOUT:
                worker.channel.flush()
        except (EOFError, OSError):
            has_ended = True
        if message is not None:
            (is_error, seconds), payload = message
            if worker.jobs:
                self._last_job_s = seconds
                # While others work, workers can start: somebody has killed those that did not.
                self._num_failed_starts = 0
            self._note_answer(worker, Answer(payload, is_error, seconds))
        if has_ended and not worker.was_killed:
            self._give_up(worker, RemoteError(worker.explain_end()), may_begin_again=True)

    def _is_hopeless(self, place: int) -> bool:
        return not any(worker.is_ready for worker in self._placed.values()) and (
            self._num_failed_starts >= self._supervision.max_attempts * self.num_workers
        )

    def _fill_places(self) -> None:
        """Start missing workers."""
        for place in range(self.num_workers):
            if place not in self._placed:
                self._placed[place] = WorkerHandle(self._make_runner_pickled, self._supervision)


def _kill_all(owner_pid: int, placed: dict[int, WorkerHandle]) -> None:
    """Kill all workers, unless this process is a forked copy of their owner."""
    if os.getpid() == owner_pid:
        for worker in placed.values():
            worker.kill()
        placed.clear()
