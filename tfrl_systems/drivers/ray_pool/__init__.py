"""Workers on the nodes of a Ray cluster; those that die, hang, or lose their node are replaced.

Ray is optional. Importing this package without it raises a `UserError` that says how to get it.

::

    the caller's process                                       a node
    ────────────────────                                       ──────
    clusters.joined           joins a cluster, or starts
      own_cluster.OwnCluster    one on this machine         own_cluster.main: holds that one
    pool.RayPool              one loop over all answers        worker.NodeWorker: an actor that
      worker_handle.WorkerHandle  ── a call: bytes ──────────▶   holds one runner: makes it, loads
        places, times and         ◀── an answer: bytes ───────   data and runs jobs
        kills one actor       ── data of a broadcast: stored
                                   once, fetched by each node
"""

from __future__ import annotations

import os

from environments.errors import UserError

# Without it, read at import, Ray reports its usage to its makers.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

try:
    import ray as ray
except ModuleNotFoundError as error:
    raise UserError(
        "collect: expected Ray, found that it is not installed; "
        "install it: pip install 'tfrl-systems[ray]'"
    ) from error
