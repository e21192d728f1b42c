"""No test of this room may leave a process."""

from __future__ import annotations

import contextlib

import pytest

from tests.processes import workers
from tfrl_systems.drivers.collect import Collect, shared


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
