"""A plugin of pytest that says what each test costs: processor time, its own and its children's.

  python -m pytest -p tools.costs_of_tests [--num-costs N] …

At the end it prints the dearest files and tests, with the processes that each of them started.
Processor time of children counts when they have ended and were waited for.
"""

from __future__ import annotations

import collections
import os
import sys
from collections.abc import Generator, Iterable
from typing import Any

import pytest

_STARTS = {"subprocess.Popen", "os.fork", "os.posix_spawn"}
_NAME = "cost"
Cost = tuple[float, float, float]
"""Seconds of processor time, own and the children's, and processes started."""


class Meter:
    """Measures tests in the process that runs them."""

    def __init__(self) -> None:
        self._num_started = 0
        sys.addaudithook(self._count)

    def _count(self, event: str, _: object) -> None:
        self._num_started += event in _STARTS

    def _now(self) -> Cost:
        times = os.times()
        children_s = times.children_user + times.children_system
        return times.user + times.system, children_s, self._num_started

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Note what setup, call and teardown came to; the report of the teardown carries it."""
        yield
        before = item.stash[_BEFORE]
        spent = [now - then for now, then in zip(self._now(), before, strict=True)]
        item.user_properties.append((_NAME, spent))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin to measure a test."""
        item.stash[_BEFORE] = self._now()


_BEFORE = pytest.StashKey[Cost]()


class Table:
    """Gathers what the tests of all workers cost, and prints it."""

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows
        self._costs: dict[str, Cost] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a test's cost from its last report."""
        spent = dict(report.user_properties).get(_NAME)
        if report.when == "teardown" and isinstance(spent, list):
            own_s, children_s, processes = spent
            self._costs[report.nodeid] = own_s, children_s, processes

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the dearest files and tests."""
        files: dict[str, list[Cost]] = collections.defaultdict(list)
        for test, cost in self._costs.items():
            files[test.split("::")[0]].append(cost)
        sums = {name: _sum(costs) for name, costs in files.items()}
        terminalreporter.section("processor time: own s, children's s, processes started")
        for costs in ({"all tests": _sum(sums.values())}, sums, self._costs):
            rows = sorted(costs.items(), key=lambda row: -sum(row[1][:2]))[: self._num_rows]
            for name, (own_s, children_s, processes) in rows:
                terminalreporter.write_line(
                    f"{own_s:7.1f} {children_s:7.1f} {processes:5.0f}  {name}"
                )
            terminalreporter.write_line("")


def _sum(costs: Iterable[Cost]) -> Cost:
    own_s, children_s, processes = map(sum, zip((0.0, 0.0, 0.0), *costs, strict=True))
    return own_s, children_s, processes


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's option."""
    text = "how many files and tests `-p tools.costs_of_tests` shows"
    parser.addoption("--num-costs", type=int, default=25, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Measure where tests run, and print where pytest was started."""
    config.pluginmanager.register(Meter())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Table(config.getoption("num_costs")))
