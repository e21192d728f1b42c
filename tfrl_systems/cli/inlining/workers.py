"""Compilers in worker processes: what `--workers` asks for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from environments.inlining.collection import Collector, Failure, ModulePlayer, OnResult
from environments.inlining.compilation import DEFAULT_TIMEOUT_S
from environments.inlining.compilers import make_compiler
from environments.inlining.corpus import Module
from environments.inlining.tasks import Task
from environments.inlining.trajectories import TrajectoryStore
from tfrl_systems.drivers.jobs import JobFailure
from tfrl_systems.drivers.pool import DriverPool
from tfrl_systems.drivers.task_runner import TaskRunner, task_data

# A compiler has a time limit for each compile, and exploring makes many: this is for a worker that
# hangs itself.
_TIMEOUT_S = 24 * 3600.0


class Workers:
    """Module players in worker processes (`environments.inlining.collection.Pool`).

    A worker that dies takes its compiler with it; both are replaced, and the module tried again.

    Args:
      make_player: makes a worker's player.
      num_workers: how many work side by side.
    """

    def __init__(self, make_player: Callable[[], ModulePlayer], num_workers: int) -> None:
        self._pool: DriverPool[Module, Any] = DriverPool(
            functools.partial(TaskRunner, make_player),
            num_workers,
            timeout_s=_TIMEOUT_S,
            # It would start a compiler of its own, which is seldom needed.
            num_spares=0,
        )

    def map(self, task: Task[Any], modules: Sequence[Module], on_result: OnResult) -> None:
        """Does `task` with each module; `on_result` is told of each result as it comes."""

        def take(number: int, result: Any) -> None:
            if isinstance(result, JobFailure):
                result = Failure(result.job.name, result.message)
            on_result(number, result)

        self._pool.broadcast(task_data(task))
        self._pool.map(modules, take)

    def close(self) -> None:
        """Ends the workers."""
        self._pool.close()


def make_collector(
    compiler: str,
    store: TrajectoryStore,
    num_workers: int,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Collector:
    """A collector with so many compilers: in worker processes, or a single one in this process.

    Args:
      compiler: "embedded", or a clang.
      store: where compiles are kept.
      num_workers: compilers that run at the same time.
      timeout_s: a compile that takes longer fails.

    Raises:
      UserError: there is no such compiler, or it does not work.
    """
    make = functools.partial(make_compiler, compiler, timeout_s)
    if num_workers == 1:
        return Collector(make, store)
    return Collector(make, store, functools.partial(Workers, num_workers=num_workers))
