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
from typing import Any, NamedTuple

import pytest

_STARTS = {"subprocess.Popen", "os.fork", "os.posix_spawn"}
_NAME = "cost"


class Cost(NamedTuple):
    """What was spent: seconds of processor time, and processes started."""

    own_s: float
    children_s: float
    processes: float

    def plus(self, addend: Iterable[float]) -> Cost:
        """Return the sum of two costs."""
        return Cost(*(mine + theirs for mine, theirs in zip(self, addend, strict=True)))

    @property
    def total_s(self) -> float:
        """Processor time in all."""
        return self.own_s + self.children_s


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
        return Cost(times.user + times.system, children_s, self._num_started)

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
            self._costs[report.nodeid] = Cost(*spent)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the dearest files and tests."""
        files: dict[str, Cost] = collections.defaultdict(lambda: Cost(0, 0, 0))
        for test, cost in self._costs.items():
            files[test.split("::")[0]] = files[test.split("::")[0]].plus(cost)
        everything = Cost(0, 0, 0)
        for cost in files.values():
            everything = everything.plus(cost)
        terminalreporter.section("processor time: own s, children's s, processes started")
        for costs in ({"all tests": everything}, files, self._costs):
            rows = sorted(costs.items(), key=lambda row: -row[1].total_s)[: self._num_rows]
            for name, cost in rows:
                line = f"{cost.own_s:7.1f} {cost.children_s:7.1f} {cost.processes:5.0f}  {name}"
                terminalreporter.write_line(line)
            terminalreporter.write_line("")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's option."""
    text = "how many files and tests `-p tools.costs_of_tests` shows"
    parser.addoption("--num-costs", type=int, default=25, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Measure where tests run, and print where pytest was started."""
    config.pluginmanager.register(Meter())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Table(config.getoption("num_costs")))
