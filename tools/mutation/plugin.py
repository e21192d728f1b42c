"""A plugin of pytest: says what tests do for `runs.py`, and what they share for `measuring.py`.

It is copied to where pytest finds it, and imports nothing of this project.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

_REPORT = "MUTANTS_REPORT"  # names a file, which gets what tests do
_SHARING = "MUTANTS_SHARING"  # names a file, which gets what tests share
_TEST = "PYTEST_CURRENT_TEST"


def _write(variable: str, *words: object) -> None:
    with pathlib.Path(os.environ[variable]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(words) + "\n")


def _report(*words: object) -> None:
    # The workers of xdist send everything to the process that started them.
    if "PYTEST_XDIST_WORKER" not in os.environ:
        _write(_REPORT, *words)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Report that a test begins."""
    _report("start", nodeid, 0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Report what came of the setup, the call or the teardown of a test."""
    _report(report.outcome, report.nodeid, report.duration)


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Report that a test has ended."""
    _report("finish", nodeid, 0)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Report a file that cannot be imported."""
    if report.failed:
        _report("failed", report.nodeid, 0)


def pytest_configure() -> None:
    """Note who borrows what, if the suite has tests/lending.py."""
    if _SHARING in os.environ:
        with contextlib.suppress(ImportError):
            lender = importlib.import_module("tests.lending").Lender
            lender.__call__ = _noting(lender.__call__)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note the fixtures of a test."""
    if _SHARING in os.environ:
        _write(_SHARING, "uses", item.nodeid, getattr(item, "fixturenames", []))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Iterator[None]:
    """Attribute the lines of a shared fixture to it, and not to the test that is the first."""
    if _SHARING not in os.environ or fixturedef.scope == "function":
        return (yield)
    with _attributed_to(f"fixture {fixturedef.baseid} {fixturedef.argname}"):
        return (yield)


def _noting(lend: Callable[..., Any]) -> Callable[..., Any]:
    def lend_and_note(lender: Any, name: str, make: Callable[..., Any]) -> Any:
        _write(_SHARING, "borrows", os.environ.get(_TEST, "").rpartition(" ")[0], name)

        def make_and_note(directory: pathlib.Path) -> Any:
            with _attributed_to(f"lent {name}"):
                return make(directory)

        return lend(lender, name, make_and_note)

    return lend_and_note


@contextlib.contextmanager
def _attributed_to(name: str) -> Iterator[None]:
    """Have coverage attribute lines to a name, here and in child processes."""
    before = os.environ[_TEST]
    test, _, phase = before.rpartition(" ")
    os.environ[_TEST] = f"{name} (call)"
    _switch_context(f"{name}|call")
    try:
        yield
    finally:
        os.environ[_TEST] = before
        _switch_context(f"{test}|{phase[1:-1]}")


def _switch_context(name: str) -> None:
    from coverage import Coverage

    coverage = Coverage.current()
    assert coverage is not None, "pytest-cov has started it"
    coverage.switch_context(name)
