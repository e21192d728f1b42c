"""What a pool does with more workers than this machine can hold: a simulation.

The model: the process that learns (the head) serves one worker at a time. It needs `head_s` for
each job, to hand it out and to read its result. A worker needs `job_s` for a job, and has one at a
time.
"""

from __future__ import annotations

import dataclasses
import heapq


@dataclasses.dataclass(frozen=True)
class Load:
    """What one job asks of whom.

    Attributes:
      job_s: time of a worker, in seconds.
      head_s: time of the head, in seconds.
      result_bytes: bytes that come back.
      data_bytes: bytes that each node gets in each iteration, a policy's variables.
    """

    job_s: float
    head_s: float
    result_bytes: float = 0.0
    data_bytes: float = 0.0


def simulated_s(load: Load, num_workers: int, num_jobs: int) -> float:
    """Return how long the pool takes for `num_jobs` jobs, in seconds.

    Args:
      load: what a job asks for.
      num_workers: how many workers there are.
      num_jobs: how many jobs.
    """
    # When each worker that has a job is done with it; at first the head hands out one by one.
    head_s = 0.0
    finished_s: list[float] = []
    for _ in range(min(num_workers, num_jobs)):
        head_s += load.head_s
        finished_s.append(head_s + load.job_s)
    heapq.heapify(finished_s)
    for _ in range(num_jobs - len(finished_s)):
        # One service of the head reads a result and hands out the next job.
        head_s = max(head_s, finished_s[0]) + load.head_s
        heapq.heapreplace(finished_s, head_s + load.job_s)
    return max(finished_s)


def efficiency(seconds: float, load: Load, num_workers: int, num_jobs: int) -> float:
    """Return the share of the workers' time that went into jobs, from 0 to 1."""
    return num_jobs * load.job_s / (num_workers * seconds)


def limits(load: Load, num_workers: int, bytes_per_s: float) -> dict[str, float]:
    """Return how many jobs a second each part of a cluster could carry alone.

    Args:
      load: what a job asks for.
      num_workers: how many workers there are.
      bytes_per_s: what the head's network carries.

    Returns:
      Jobs per second of the `workers`, the `head` (its processor) and its `network`.
    """
    return {
        "workers": num_workers / load.job_s,
        "head": 1 / load.head_s,
        "network": bytes_per_s / load.result_bytes if load.result_bytes else float("inf"),
    }
