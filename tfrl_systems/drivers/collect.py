"""Settings that say where jobs run, and the function that makes a pool from them."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from environments.errors import UserError
from tfrl_systems.drivers.jobs import Job, MakeRunner, Pool, Result
from tfrl_systems.drivers.requirements import Requirements

# kind -> module and class, which is called with the arguments of `make_pool`.
POOLS: Mapping[str, tuple[str, str]] = {
    "inprocess": ("tfrl_systems.drivers.in_process", "InProcessPool"),
    "pipes": ("tfrl_systems.drivers.pipes.pool", "PipePool"),
    "ray": ("tfrl_systems.drivers.ray_pool.pool", "RayPool"),
}


@dataclasses.dataclass(frozen=True)
class Collect:
    """Where jobs run. Results do not depend on it.

    Attributes:
      kind: a name in `POOLS`: "inprocess" for this process, "pipes" for worker processes on this
        machine, "ray" for workers on the nodes of a Ray cluster.
      workers: number of jobs that run at the same time; 1 for "inprocess".
      address: with "ray", HOST:PORT of a cluster that this machine is a node of, or "auto" for the
        one that runs here; "" to start one on this machine for as long as it is needed.
      timeout_s: seconds that a worker may take for one job, in place of `Supervision.timeout_s`;
        None for that.

    Raises:
      UserError: `workers` is less than 1.
    """

    kind: str = "inprocess"
    workers: int = 1
    address: str = ""
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise UserError(
                f"workers: expected 1 or more, found {self.workers}; give another number"
            )

    @classmethod
    def with_workers(cls, workers: int) -> Collect:
        """Return settings for this process if there is one worker, else for worker processes."""
        return cls("pipes" if workers > 1 else "inprocess", workers)


@dataclasses.dataclass(frozen=True)
class Supervision:
    """What a pool does about workers that die or hang, and about jobs that fail.

    Attributes:
      timeout_s: seconds that a worker may take for one job, to load data, or to copy files to its
        node. A slower worker is killed and replaced. A job in this process has no limit.
      start_timeout_s: seconds that a worker may take to start.
      max_attempts: how often a job is tried, and how often in a row, on average over the workers,
        one is started in vain before the pool gives up.
    """

    timeout_s: float = 300.0
    start_timeout_s: float = 120.0
    max_attempts: int = 3


@contextlib.contextmanager
def shared(collect: Collect) -> Iterator[None]:
    """Keep what pools share, a Ray cluster, from one pool to the next.

    Raises:
      UserError: there is no such cluster.
    """
    with _clusters().joined(collect.address) if collect.kind == "ray" else contextlib.nullcontext():
        yield


def num_processors_at(address: str) -> int:
    """Return how many processors a Ray cluster has; see `Collect` for the address.

    Raises:
      UserError: there is no such cluster, or it has none.
    """
    with shared(Collect("ray", address=address)):
        return int(_clusters().num_processors())


def _clusters() -> Any:
    """Import what needs Ray."""
    return importlib.import_module("tfrl_systems.drivers.ray_pool.clusters")


def make_pool(
    collect: Collect,
    make_runner: MakeRunner[Job, Result],
    supervision: Supervision = Supervision(),
    requirements: Requirements = Requirements(),
) -> Pool[Job, Result]:
    """Make the pool that runs jobs where `collect` says.

    `make_runner` makes a worker's runner, in the worker. It is sent there by cloudpickle, so it may
    be a function of a notebook. It must not carry TensorFlow objects.

    Raises:
      UserError: there is no such kind of pool, or it cannot do what `collect` asks for.
    """
    if collect.kind not in POOLS:
        raise UserError(
            f"collect: expected one of {', '.join(POOLS)}, found {collect.kind!r}; name one of them"
        )
    if collect.timeout_s is not None:
        supervision = dataclasses.replace(supervision, timeout_s=collect.timeout_s)
    module, name = POOLS[collect.kind]
    pool_class = getattr(importlib.import_module(module), name)
    pool: Pool[Job, Result] = pool_class(make_runner, collect, supervision, requirements)
    return pool
