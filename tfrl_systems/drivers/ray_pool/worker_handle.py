"""The pool's handle on one worker: has it placed, times it, and makes sure that it ends."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection
from typing import Any

import ray

from tfrl_systems.drivers.collect import Supervision
from tfrl_systems.drivers.ray_pool import clusters
from tfrl_systems.drivers.ray_pool.worker import Needs, NodeWorker, Place
from tfrl_systems.drivers.remote_pool import Handle, State
from tfrl_systems.drivers.worker import SINGLE_THREADED, Answer

# A run has two pools at times: one collects and the other evaluates, never both at once. With half
# a processor for each worker, both get one worker for each processor.
_PROCESSORS = 0.5


class WorkerHandle(Handle):
    """An actor that runs one job after another. It begins to look for a place at once.

    Args:
      needs: what it has to find on its node.
      is_local: whether the cluster was started for this process, on this machine. Its workers take
        no processors, so that all find a place, and they get their environment variables from it.
      supervision: how long the worker may take.
      unfit: Ray's names of nodes that it must not be on.
      doubtful: Ray's names of nodes that it is on only if no other has room.

    Attributes:
      place: where it is; None while it waits.
      call: the answer that it owes; None when it is idle.
    """

    def __init__(
        self,
        needs: Needs,
        is_local: bool,
        supervision: Supervision,
        unfit: Collection[str] = (),
        doubtful: Collection[str] = (),
    ) -> None:
        super().__init__(supervision, State.WAITING)
        options: dict[str, Any] = {"num_cpus": 0}
        if not is_local:
            options = {"num_cpus": _PROCESSORS, "runtime_env": {"env_vars": SINGLE_THREADED}}
        options["label_selector"] = _elsewhere({*unfit, *doubtful})
        options["fallback_strategy"] = [{"label_selector": _elsewhere(unfit)}]
        # The pool restarts workers and repeats jobs; Ray must do neither.
        make_actor: Any = ray.remote(**options, max_restarts=0, max_task_retries=0)(NodeWorker)
        self._actor: Any = make_actor.remote()
        self.place: Place | None = None
        self.call: Any = self._actor.look.remote(needs)

    @property
    def node(self) -> str:
        """Return the address of its node."""
        return self.place.node if self.place is not None else "an unknown node"

    def start(self, make_runner_ref: Any) -> None:
        """Have it make its runner; the reference is to the pickled function that does so."""
        self._call(State.STARTING, "start", make_runner_ref)

    def fetch(self, number: int, part_refs: list[Any]) -> None:
        """Have it copy missing files to its node; the references are to their parts."""
        self._call(State.FETCHING, "fetch", part_refs, number)

    def _send(self, method: str, *arguments: Any) -> None:
        self.call = getattr(self._actor, method).remote(*arguments)

    def take_answer(self) -> Place | Answer:
        """Return the answer that has arrived.

        Raises:
          ray.exceptions.RayError: the worker or its node was lost.
        """
        answer: Place | Answer = ray.get(self.call)
        self.call = self.deadline_s = None
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
        if not clusters.lost():
            with contextlib.suppress(Exception):
                ray.kill(self._actor)


def _elsewhere(node_ids: Collection[str]) -> dict[str, str]:
    """Return Ray's selector of nodes that are none of these."""
    return {"ray.io/node-id": f"!in({','.join(sorted(node_ids))})"} if node_ids else {}
