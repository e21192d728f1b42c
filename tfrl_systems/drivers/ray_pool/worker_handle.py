"""The pool's handle on one worker: has it placed, times it, and makes sure that it ends."""

from __future__ import annotations

import contextlib
import enum
import re
import time
from collections.abc import Collection
from typing import Any

import ray

from tfrl_systems.drivers.collect import Supervision
from tfrl_systems.drivers.processes import SINGLE_THREADED
from tfrl_systems.drivers.ray_pool import clusters
from tfrl_systems.drivers.ray_pool.worker import Answer, Needs, Place, Worker

# A run has two pools at times: one collects and the other evaluates, never both at once. With half
# a processor for each worker, both get one worker for each processor.
_PROCESSORS = 0.5


class State(enum.Enum):
    """What a worker does, or did last."""

    WAITING = "waits for a place on a node"
    STARTING = "makes its runner"
    FETCHING = "copies files to its node"
    IDLE = "has nothing to do"
    LOADING = "loads data"
    RUNNING = "runs a job"


class WorkerHandle:
    """An actor that runs one job after another. It begins to look for a place at once.

    Args:
      needs: what it has to find on its node.
      is_local: whether the cluster was started for this process, on this machine. Its workers take
        no processors, so that all find a place, and they get their environment variables from it.
      supervision: how long the worker may take.
      unfit: Ray's names of nodes that it must not be on.
      doubtful: Ray's names of nodes that it is on only if no other has room.

    Attributes:
      state: what it does.
      place: where it is; None while it waits.
      call: the answer that it owes; None when it is idle.
      deadline_s: when that answer is late, on the clock of `time.monotonic`; None for no limit.
      version: version of the data that it answered to last; 0 before the first.
      job: number of the job that it is running; None if it runs none.
    """

    def __init__(
        self,
        needs: Needs,
        is_local: bool,
        supervision: Supervision,
        unfit: Collection[str] = (),
        doubtful: Collection[str] = (),
    ) -> None:
        options: dict[str, Any] = {"num_cpus": 0}
        if not is_local:
            options = {"num_cpus": _PROCESSORS, "runtime_env": {"env_vars": SINGLE_THREADED}}
        options["label_selector"] = _elsewhere({*unfit, *doubtful})
        options["fallback_strategy"] = [{"label_selector": _elsewhere(unfit)}]
        # The pool restarts workers and repeats jobs; Ray must do neither.
        make_actor: Any = ray.remote(**options, max_restarts=0, max_task_retries=0)(Worker)
        self._actor: Any = make_actor.remote()
        self._supervision = supervision
        self.state = State.WAITING
        self.place: Place | None = None
        self.call: Any = self._actor.look.remote(needs)
        self.deadline_s: float | None = None
        self.version = self._loading = 0
        self.job: int | None = None

    @property
    def is_ready(self) -> bool:
        """Return whether it has made its runner."""
        return self.state in (State.IDLE, State.LOADING, State.RUNNING)

    @property
    def node(self) -> str:
        """Return the address of its node."""
        return self.place.node if self.place is not None else "an unknown node"

    @property
    def limit_s(self) -> float:
        """Return the seconds that it may take for what it does."""
        is_short = self.state in (State.WAITING, State.STARTING)
        return self._supervision.start_timeout_s if is_short else self._supervision.timeout_s

    def start(self, make_runner_ref: Any) -> None:
        """Have it make its runner; the reference is to the pickled function that does so."""
        self._begin(State.STARTING, self._actor.start.remote(make_runner_ref))

    def fetch(self, number: int, part_refs: list[Any]) -> None:
        """Have it copy missing files to its node; the references are to their parts."""
        self._begin(State.FETCHING, self._actor.fetch.remote(number, part_refs))

    def load(self, data_ref: Any, version: int, sha256: str) -> None:
        """Have it load data; the reference is to the pickled data."""
        self._loading = version
        self._begin(State.LOADING, self._actor.load.remote(data_ref, version, sha256))

    def run(self, number: int, job_pickled: bytes) -> None:
        """Have it run a job with its current data."""
        self.job = number
        self._begin(State.RUNNING, self._actor.run.remote(job_pickled, self.version))

    def _begin(self, state: State, call: Any) -> None:
        self.state, self.call = state, call
        self.deadline_s = time.monotonic() + self.limit_s

    def take_answer(self) -> Place | Answer:
        """Return the answer that has arrived.

        Raises:
          ray.exceptions.RayError: the worker or its node was lost.
        """
        answer: Place | Answer = ray.get(self.call)
        self.call = self.deadline_s = None
        if self.state is State.LOADING:
            # The pool may have broadcast a later version by now.
            self.version = self._loading
        return answer

    def why_unable(self, error: Exception) -> str:
        """Return why no worker can start on this node, in one line; "" if it was only lost."""
        # Ray puts the node's ImportError in the middle of many lines.
        missing = re.search(r"^\s*(\w*Error: .*)$", str(error), re.MULTILINE)
        if isinstance(error, ray.exceptions.RayTaskError) or missing:
            return f"its worker cannot begin on {self.node}: {missing[1] if missing else error}"
        return ""

    def why_lost(self, error: Exception) -> str:
        """Return how the worker was lost, in one line."""
        return f"its worker on {self.node} was lost ({type(error).__name__})"

    def ask_to_end(self) -> Any:
        """Have an idle worker close its runner; return the answer that it owes."""
        return self._actor.close.remote()

    def kill(self) -> None:
        """End the process, whatever it does. May be called more than once."""
        self.call = self.deadline_s = None
        # Without its cluster Ray would end this process; the workers are gone with it.
        if not clusters.is_lost():
            with contextlib.suppress(Exception):
                ray.kill(self._actor)


def _elsewhere(node_ids: Collection[str]) -> dict[str, str]:
    """Return Ray's selector of nodes that are none of these."""
    return {"ray.io/node-id": f"!in({','.join(sorted(node_ids))})"} if node_ids else {}
