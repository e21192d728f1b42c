"""A Ray cluster of several nodes on this machine that loses one after another."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from unittest import mock

import numpy as np
import psutil

from tfrl_systems.drivers.collect import Collect, shared
from tools.benchmarks.scaling import measuring
from tools.benchmarks.scaling.sleeping import Begun

_STORE_BYTES = 100 << 20
_NUM_WORKERS = 2
_ENVIRONMENT = {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}


def recoveries_s(num_losses: int, generator: np.random.Generator) -> list[float]:
    """Lose nodes at random moments; return how long each lost job waited for its next worker.

    Args:
      num_losses: how many nodes are lost, one after another; as many wait for a worker.
      generator: draws the moments and the nodes.
    """
    with _cluster(_NUM_WORKERS + num_losses) as address:
        collect = Collect("ray", _NUM_WORKERS, address)
        return measuring.recoveries_s(collect, num_losses, generator, _lose_node)


def _lose_node(begun: Begun) -> None:
    """Lose the node where a job has begun: its raylet, which is the worker's parent, and itself."""
    raylet = psutil.Process(begun.pid).parent()
    assert raylet is not None
    raylet.kill()
    with contextlib.suppress(ProcessLookupError):
        measuring.kill(begun)


@contextlib.contextmanager
def _cluster(num_nodes: int) -> Iterator[str]:
    """Give the address of a cluster with nodes of one processor each."""
    from ray.cluster_utils import Cluster

    with mock.patch.dict(os.environ, _ENVIRONMENT):
        cluster = Cluster()
        cluster.add_node(num_cpus=0, object_store_memory=_STORE_BYTES, include_dashboard=False)
        try:
            for _ in range(num_nodes):
                cluster.add_node(num_cpus=1, object_store_memory=_STORE_BYTES)
            with shared(Collect("ray", address=cluster.address)):
                yield cluster.address
        finally:
            cluster.shutdown()
