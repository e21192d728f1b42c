"""Measure how collection scales, and say what limits it with more workers than this machine has.

    python -m tools.benchmarks.scaling --corpus runs/corpus/train

Sleeping jobs stand for environments, so that many workers fit on a few cores. Up to --most-workers
is measured; beyond that it is simulated (`simulation.py`), and marked so.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shlex
import sys
from typing import Any

import numpy as np

from environments.errors import UserError
from environments.inlining.corpus.modules import Corpus
from tfrl_systems.drivers.collect import Collect
from tools.benchmarks.scaling import counting, measuring, nodes, report
from tools.benchmarks.scaling.simulation import Load, efficiency, limits, simulated_s
from tools.benchmarks.shared import commit
from tools.running import exit_status

# The bar of an environment whose chunks take this long.
_SLEEP_S = 0.2
_JOBS_PER_WORKER = 10
_BEYOND = (10, 100, 1000)
_RESULT_BYTES = (0, 100_000, 1_000_000)


def main() -> int:
    """Run the tool; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks.scaling", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--corpus", type=pathlib.Path, help="weigh chunks of inlining on it too")
    parser.add_argument("--most-workers", type=int, default=32, help="default: 32")
    parser.add_argument("--losses", type=int, default=20, help="workers to kill (default: 20)")
    parser.add_argument("--node-losses", type=int, default=5, help="nodes to kill (default: 5)")
    parser.add_argument("--jobs", type=int, default=500, help="jobs to average (default: 500)")
    parser.add_argument(
        "--gigabits", type=float, default=1.0, help="the head's network (default: 1)"
    )
    parser.add_argument("--per-node", type=int, default=16, help="workers of a node (default: 16)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    return exit_status(_run, parser.parse_args())


def _run(options: argparse.Namespace) -> None:
    for name in ("most_workers", "losses", "node_losses", "jobs", "per_node"):
        if getattr(options, name) < 1:
            flag = "--" + name.replace("_", "-")
            raise UserError(
                f"{flag}: expected 1 or more, found {getattr(options, name)}; give more"
            )
    if options.corpus:
        Corpus.load(options.corpus)  # Weighed last; what is wrong with it is said now.
    generator = np.random.default_rng(options.seed)
    # First, because Ray reads once in each process how the nodes of a cluster know each other.
    _say(f"ray: losing {options.node_losses} nodes")
    nodes_s = nodes.recoveries_s(options.node_losses, generator)
    pools = {kind: measure_pool(kind, options, generator) for kind in ("pipes", "ray")}
    found = {
        "command": shlex.join(["python", "-m", "tools.benchmarks.scaling", *sys.argv[1:]]),
        "commit": commit(),
        "processors": os.cpu_count(),
        "busy": os.getloadavg()[0],
        "pools": pools,
        "node_recovery": measuring.summary(nodes_s),
        "chunks": {
            system: weigh_beyond(system, options, pools["ray"]) for system in _systems(options)
        },
    }
    print(json.dumps(found) if options.json else report.markdown(found))


def _systems(options: argparse.Namespace) -> list[str]:
    return [name for name in counting.RUNS if name != "inlining" or options.corpus]


def measure_pool(
    kind: str, options: argparse.Namespace, generator: np.random.Generator
) -> dict[str, Any]:
    """Measure a kind of pool on this machine.

    Args:
      kind: "pipes" or "ray".
      options: of the command line.
      generator: draws when workers are killed.

    Returns:
      `start_s`; `overhead` by size of the results, in ms a job; `scaling` by number of workers,
      with the efficiency as `measured` and as `simulated`; `recovery`: how long a lost worker's job
      waited, in seconds.
    """
    _say(f"{kind}: start and overhead")
    overheads = {
        size: measuring.overhead(Collect(kind, 1), size, options.jobs) for size in _RESULT_BYTES
    }
    load = Load(_SLEEP_S, overheads[0].head_ms / 1e3)
    scaling = {}
    for workers in _doubled(options.most_workers):
        _say(f"{kind}: {workers} workers")
        num_jobs = workers * _JOBS_PER_WORKER
        with measuring.all_at_work(Collect(kind, workers)) as pool:
            took_s = measuring.nap(pool, num_jobs, _SLEEP_S)
        scaling[workers] = {
            "measured": efficiency(took_s, load, workers, num_jobs),
            "simulated": efficiency(simulated_s(load, workers, num_jobs), load, workers, num_jobs),
        }
    _say(f"{kind}: losing {options.losses} workers")
    waited_s = measuring.recoveries_s(Collect(kind, 2), options.losses, generator)
    return {
        "start_s": measuring.start_s(Collect(kind, 2)),
        "overhead": {size: vars(one) for size, one in overheads.items()},
        "scaling": scaling,
        "recovery": measuring.summary(waited_s),
    }


def _doubled(most: int) -> list[int]:
    found = [1]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found


def weigh_beyond(system: str, options: argparse.Namespace, pool: dict[str, Any]) -> dict[str, Any]:
    """Weigh a system's chunks, and say what would limit clusters that collect them.

    Args:
      system: name of the system.
      options: of the command line.
      pool: what was measured of the pool on Ray.

    Returns:
      What `counting.weigh` returns; `head_ms` of a chunk; and `beyond` by number of workers: what
      limits (`limit`), the `efficiency` of 10 chunks a worker, and `broadcast_s` of an iteration.
    """
    _say(f"{system}: weighing chunks")
    problem = {"corpus": options.corpus} if system == "inlining" else {}
    weighed = counting.weigh(system, 2, options.seed, **problem)
    head_ms = head_ms_of(pool["overhead"], weighed["result_bytes"]) + 1e3 * weighed["unpack_s"]
    load = Load(weighed["job_s"], head_ms / 1e3, weighed["result_bytes"], weighed["data_bytes"])
    bytes_per_s = options.gigabits * 1e9 / 8
    beyond = {}
    for workers in _BEYOND:
        num_jobs = workers * _JOBS_PER_WORKER
        carried = limits(load, workers, bytes_per_s)
        # The head and its network work side by side; the slower one decides.
        served = Load(load.job_s, max(1 / carried["head"], 1 / carried["network"]))
        took_s = simulated_s(served, workers, num_jobs)
        beyond[workers] = {
            "limit": min(carried, key=lambda name: carried[name]),
            "efficiency": efficiency(took_s, served, workers, num_jobs),
            "broadcast_s": load.data_bytes * -(-workers // options.per_node) / bytes_per_s,
        }
    return {**weighed, "head_ms": head_ms, "beyond": beyond}


def head_ms_of(overheads: dict[int, dict[str, float]], result_bytes: float) -> float:
    """Return the head's processor time for a job, in ms, between those that were measured."""
    sizes = sorted(overheads)
    measured = [overheads[size]["head_ms"] for size in sizes]
    slope, base = np.polyfit(sizes, measured, 1)
    return max(float(base + slope * result_bytes), min(measured))


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
