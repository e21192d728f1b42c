"""A collection of some iterations, by a pool and by hand."""

from __future__ import annotations

import functools
import hashlib

import numpy as np

from tests.tfrl_systems.drivers.runners import Noise, Task

NUM_ITERATIONS, NUM_JOBS = 3, 12


def sha256(results):
    digest = hashlib.sha256()
    for result in results:
        assert isinstance(result, np.ndarray), result
        digest.update(result.tobytes())
    return digest.hexdigest()


def tasks_of(iteration):
    return [Task(100 * iteration + index) for index in range(NUM_JOBS)]


@functools.cache
def expected():
    """The hash of each iteration, from one runner without a pool."""
    hashes, runner = [], Noise()
    for iteration in range(NUM_ITERATIONS):
        runner.load(str(iteration).encode())
        hashes.append(sha256([runner.run(task) for task in tasks_of(iteration)]))
    return hashes


def collect(pool, faults=()):
    """The same from a pool; `faults` are (iteration, index of the job, what goes wrong, times)."""
    hashes = []
    with pool:
        for iteration in range(NUM_ITERATIONS):
            pool.broadcast(str(iteration).encode())
            tasks = tasks_of(iteration)
            for when, index, fault, times in faults:
                if when == iteration:
                    tasks[index] = Task(tasks[index].seed, fault, times)
            hashes.append(sha256(pool.map(tasks)))
    return hashes
