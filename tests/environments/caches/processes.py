"""Processes that tests start in numbers, and kill: from a server without threads, in a moment."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import random
import time
from collections.abc import Callable, Iterator

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["environments.caches.table", "pytest"])


@contextlib.contextmanager
def started(target: Callable, *arguments) -> Iterator:
    """Start a process that says when it is ready, by its last argument; kill it in the end."""
    ready = SERVER.Event()
    process = SERVER.Process(target=target, args=(*arguments, ready))
    process.start()
    try:
        assert ready.wait(60)
        yield process
    finally:
        process.kill()
        process.join()


def hammered(hammer: Callable, path: os.PathLike, disturb_fn: Callable, seconds: float) -> None:
    """Let two processes hammer a cache while others are killed that do so, and others disturb it.

    Args:
      hammer: (path, seed, over, ready) -> None; works until the file `over` exists, and fails if it
        finds what is wrong. (Whoever is killed may hold the lock of an event for ever.)
      path: the cache.
      disturb_fn: (number of processes killed, generator) -> None; called again and again.
      seconds: how long, at least.
    """
    generator, over = random.Random(0), pathlib.Path(f"{os.fspath(path)}.over")
    end_s, num_killed = time.monotonic() + seconds, 0
    events = [SERVER.Event() for _ in range(2)]
    steady = [
        SERVER.Process(target=hammer, args=(path, seed, over, event))
        for seed, event in enumerate(events)
    ]
    for process in steady:
        process.start()
    while time.monotonic() < end_s or num_killed < 8:
        with started(hammer, path, generator.randrange(2**31), over):
            time.sleep(generator.uniform(0, 0.05))
        num_killed += 1
        disturb_fn(num_killed, generator)
    over.touch()
    for process in steady:
        process.join(60)
        assert process.exitcode == 0
