"""A pool of workers on the nodes of a Ray cluster, which survives the loss of workers and nodes.

A worker that dies, loses its node, or takes too long for a job is replaced, and the next free
worker runs its job again. A worker for which no node has room waits until a node joins; meanwhile
the others work. A node that lacks files gets copies; one that lacks programs gets no work.

If the cluster of this machine alone is lost, every call raises a PoolError. Ray would end this
process, or wait for ever, so the pool asks `clusters` before it asks Ray for anything.
"""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections.abc import Callable
from typing import Any

import ray

from environments.errors import UserError
from environments.machine import search_path
from tfrl_systems.drivers.collect import Collect, Supervision
from tfrl_systems.drivers.jobs import Job, MakeRunner, PoolError, Result
from tfrl_systems.drivers.pipes.messages import RemoteError, pickled
from tfrl_systems.drivers.ray_pool import clusters
from tfrl_systems.drivers.ray_pool.worker import Needs, Place
from tfrl_systems.drivers.ray_pool.worker_handle import WorkerHandle
from tfrl_systems.drivers.remote_pool import RemotePool, State
from tfrl_systems.drivers.requirements import Requirements
from tfrl_systems.drivers.worker import Answer

_log = logging.getLogger(__name__)

# How long idle workers may take to close their runners when the pool is closed.
_CLOSE_TIMEOUT_S = 3.0
# How long a pool waits at its start for further workers to be placed, after the first one is ready.
_SETTLE_S = 2.0
# How long Ray may take to notice that a node is gone. Until then it sends workers there, and waits.
_DOUBT_S = 60.0
# How often to look for workers that found no place in time.
_TICK_S = 1.0


class RayPool(RemotePool[Job, Result]):
    """Runs jobs on a Ray cluster (`jobs.Pool`).

    The constructor asks for the workers and does not wait for them. The first `broadcast` or `map`
    waits, and raises the error of a worker that could not start. Without an address, a cluster on
    this machine is started for this process; however this process ends, the cluster ends too.

    The arguments are those of `collect.make_pool`.

    Raises:
      UserError: there is no such cluster, or this machine lacks what runners need.
      PoolError: no cluster can be started.
    """

    def __init__(
        self,
        make_runner: MakeRunner[Job, Result],
        collect: Collect,
        supervision: Supervision,
        requirements: Requirements = Requirements(),
    ) -> None:
        super().__init__(collect.workers, supervision)
        make_runner_pickled = pickled(make_runner)
        self._placed: dict[int, WorkerHandle] = {}
        with contextlib.ExitStack() as end:
            end.enter_context(clusters.joined(collect.address))
            self._needs = Needs.of_this_process(search_path(), requirements, clusters.is_local())
            leave = end.pop_all().close
        # Called when this process or the pool ends; so it must not refer to the pool itself.
        self._end = weakref.finalize(self, _end, self._placed, leave)
        self._address = collect.address
        self._settled_s: float | None = None
        self._early_loss = ""  # why the last worker was lost that had found no place yet
        # Places whose workers failed again and again, while others work.
        self._given_up: set[int] = set()
        self._unfit: dict[str, str] = {}  # why nodes get no work, by Ray's names of the nodes
        self._doubtful: dict[str, float] = {}  # until when nodes are, by Ray's names of them
        self._parts: dict[int, list[Any]] = {}
        self._make_runner = ray.put(make_runner_pickled)
        self._without_workers_s: float | None = time.monotonic()
        self._fill_places()

    def close(self) -> None:
        """End the workers: idle ones close their runners, the others are killed."""
        super().close()
        try:
            idle = [worker for worker in self.workers if worker.is_idle]
            closing = [worker.ask_to_end() for worker in idle if not clusters.lost()]
            if closing:
                ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_TIMEOUT_S)
        finally:
            self._end()

    def _begin(self) -> None:
        clusters.check_not_lost()
        super()._begin()

    def _are_all_started(self) -> bool:
        """Return whether all have started, or some, and the others wait for room."""
        if self._are_all(State.IDLE):
            return True
        if not any(worker.is_ready for worker in self._placed.values()):
            return False
        # This machine has room for all, however long their processes take to begin.
        patience_s = self._supervision.start_timeout_s if clusters.is_local() else _SETTLE_S
        self._settled_s = self._settled_s or time.monotonic() + patience_s
        return self._are_all(State.IDLE, State.WAITING) and time.monotonic() > self._settled_s

    def _are_all(self, *states: State) -> bool:
        """Return whether all places that can have a worker have one in one of these states."""
        workers = self._placed.values()
        num_able = self.num_workers - len(self._given_up)
        return len(workers) == num_able and all(worker.state in states for worker in workers)

    def _stored(self, data_pickled: bytes) -> Any:
        # Stored once; each node fetches it once.
        return ray.put(data_pickled)

    def _handle_next(self) -> None:
        clusters.check_not_lost()
        self._fill_places()
        self._assign()
        calls = {worker.call: worker for worker in self.workers if worker.call is not None}
        assert calls, "someone has something to do"
        now_s = time.monotonic()
        deadlines_s = [worker.deadline_s for worker in self.workers if worker.deadline_s]
        wait_s = min([_TICK_S, *(max(deadline_s - now_s, 0) for deadline_s in deadlines_s)])
        answered, others = ray.wait(list(calls), num_returns=1, timeout=wait_s)
        clusters.check_not_lost()
        if answered and others:
            answered += ray.wait(others, num_returns=len(others), timeout=0)[0]
        for call in answered:
            self._take_answer(calls[call])
        self._give_up_late(may_begin_again=True)
        self._check_room()

    def _check_room(self) -> None:
        """Check that a worker has found a place, or may still do so.

        Raises:
          PoolError, UserError: there is no use in going on.
        """
        now_s = time.monotonic()
        if any(worker.state is not State.WAITING for worker in self._placed.values()):
            self._without_workers_s = None
            return
        # The last node that lacked nothing may be gone.
        self._check_nodes()
        self._without_workers_s = self._without_workers_s or now_s
        limit_s = self._supervision.start_timeout_s
        if now_s - self._without_workers_s > limit_s:
            obstacle = next(iter(self._unfit.values()), self._early_loss or "none")
            raise PoolError(
                f"workers: expected a node with room for one within {limit_s:g} s, found "
                f"{obstacle}; add a node (ray start --address=HOST:PORT), or end what uses the "
                "cluster"
            )

    def _take_answer(self, worker: WorkerHandle) -> None:
        try:
            answer = worker.take_answer()
        except ray.exceptions.RayError as error:
            unable = worker.why_unable(error)
            if unable or worker.state is not State.WAITING:
                self._doubt(worker)
                why = RemoteError(unable or worker.why_lost(error))
                self._give_up(worker, why, may_begin_again=True)
            else:
                self._note_early_loss(worker, worker.why_lost(error))
            return
        if isinstance(answer, Place):
            worker.place = answer
            if answer.lacking:
                self._leave_out(worker, answer.lacking)
            else:
                worker.start(self._make_runner)
        else:
            self._note_answer(worker, answer)

    def _doubt(self, worker: WorkerHandle) -> None:
        """Avoid a lost worker's node for a while: the whole node may be lost."""
        if worker.place is None or clusters.is_local():
            return
        self._doubtful[worker.place.node_id] = time.monotonic() + _DOUBT_S
        # The node may hold these objects, and Ray would wait for it before it looks elsewhere.
        self._make_runner = ray.put(ray.get(self._make_runner))
        if self._version:
            self._data = ray.put(ray.get(self._data))
        self._parts.clear()

    def _note_early_loss(self, worker: WorkerHandle, why: str) -> None:
        """Remove a worker that was lost before it had a place; `_fill_places` asks for another.

        Ray sends workers to a node for seconds after it is gone. So these losses do not count as
        failed starts; `_check_room` limits their time instead.
        """
        if why != self._early_loss:
            _log.warning("%s", why)
        self._early_loss = why
        self._remove(worker)

    def _note_done(self, worker: WorkerHandle, state: State, answer: Answer) -> None:
        missing = answer.value
        if state is State.FETCHING:
            worker.start(self._make_runner)
        elif missing is not None:
            worker.fetch(missing, self._parts_of(missing))
        else:
            super()._note_done(worker, state, answer)

    def _note_failed_start(self, worker: WorkerHandle, state: State, error: RemoteError) -> None:
        if state is State.FETCHING:
            self._leave_out(worker, error.message)
            return
        message = self._on(worker, error.message)
        super()._note_failed_start(worker, state, error._replace(message=message))

    def _parts_of(self, number: int) -> list[Any]:
        """Return references to the parts of files, stored when a node first lacks them."""
        if number not in self._parts:
            self._parts[number] = [ray.put(part) for part in self._needs.files[number].parts()]
        return self._parts[number]

    def _leave_out(self, worker: WorkerHandle, lacking: str) -> None:
        """Remove a worker whose node lacks something, and give its node no work.

        Raises:
          UserError: no other node is left.
        """
        assert worker.place is not None
        line, node_id = self._on(worker, lacking), worker.place.node_id
        if node_id not in self._unfit:
            _log.warning("%s", line)
        self._unfit[node_id] = line
        self._remove(worker)
        self._check_nodes()

    def _check_nodes(self) -> None:
        """Raise a UserError if all nodes lack something."""
        if self._unfit and clusters.node_ids() <= self._unfit.keys():
            raise UserError(next(reversed(self._unfit.values())))

    def _on(self, worker: WorkerHandle, message: str) -> str:
        """Add to a message the node that it is about, if there are several."""
        return f"node {worker.node}: {message}" if self._address else message

    def _is_hopeless(self, place: int) -> bool:
        if self._num_failed_starts < self._supervision.max_attempts:
            return False
        if not any(worker.is_ready for worker in self._placed.values()):
            return True
        # One node may lack something that the others have.
        self._given_up.add(place)
        self._num_failed_starts = 0
        return False

    def _fill_places(self) -> None:
        """Ask for missing workers."""
        now_s = time.monotonic()
        doubtful = [node_id for node_id, until_s in self._doubtful.items() if until_s > now_s]
        for place in range(self.num_workers):
            if place not in self._placed and place not in self._given_up:
                self._placed[place] = WorkerHandle(
                    self._needs, clusters.is_local(), self._supervision, self._unfit, doubtful
                )


def _end(placed: dict[int, WorkerHandle], leave: Callable[[], None]) -> None:
    """Kill all workers, and leave the cluster."""
    for worker in placed.values():
        worker.kill()
    placed.clear()
    leave()
