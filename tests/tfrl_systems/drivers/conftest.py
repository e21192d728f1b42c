"""No test of this room may leave a process."""

from __future__ import annotations

import contextlib

import psutil
import pytest

from tests.processes import is_alive, unless_ended
from tfrl_systems.drivers.collect import Collect, shared


def is_worker(process: psutil.Process) -> bool:
    """Whether a living process is a worker, by its command line.

    Linux shows an empty command line for a moment after the program of a process was replaced.
    """
    while is_alive(process):
        if command := unless_ended(process.cmdline, []):
            return "tfrl_systems.drivers.pipes.worker_main" in command
    return False


def workers(parent_pid: int | None = None) -> list[psutil.Process]:
    """The living workers of this process or of another."""
    return [child for child in psutil.Process(parent_pid).children() if is_worker(child)]


class OneCluster:
    """A Ray cluster that pools share from one test to the next: starting one takes seconds."""

    def __init__(self) -> None:
        self._end = contextlib.ExitStack()
        self._is_there = False

    def keep(self) -> None:
        """Start it, unless it is there."""
        if not self._is_there:
            self._end.enter_context(shared(Collect("ray")))
            self._is_there = True

    def end(self) -> None:
        """End it, for tests that join or lose clusters of their own."""
        self._end.close()
        self._is_there = False


@pytest.fixture(scope="package")
def one_cluster():
    cluster = OneCluster()
    yield cluster
    cluster.end()


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = workers()  # of pools that tests share
    yield
    assert workers() == before
