"""Which tests run which lines: a run of the suite under coverage, and what it tells."""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence

from environments.errors import UserError
from tools.mutation.places import Mutant
from tools.mutation.runs import PACKAGES, make_environment, run_pytest, sources

_RECORD = "measured.json"
_TO_INSTALL = "pip install 'coverage >= 7.13' pytest-cov"
# The context of a child process is the test that started it. Coverage reads this file, and so the
# variable, in each child anew; its own `patch = subprocess` would hand on the parent's reading.
_CONFIG = """[run]
parallel = true
data_file = {output}/coverage
source =
    {checkout}/environments
    {checkout}/tfrl_systems
context = ${{PYTEST_CURRENT_TEST}}
core = ctrace
patch = _exit
"""
# What pytest-cov calls a phase of a test, and what pytest does in PYTEST_CURRENT_TEST.
_CONTEXT = re.compile(r"(.*)(?:\|(\w+)| \((\w+)\))", re.DOTALL)
_PROBE = """
import sys, coverage, pytest_cov
sys.exit(not hasattr(coverage.process_startup, "coverage"))
"""


def measure(checkout: pathlib.Path, output: pathlib.Path, words: Sequence[str]) -> list[str]:
    """Run the suite of a checkout under coverage.

    Args:
      checkout: its root.
      output: the directory for the data.
      words: further arguments for pytest.

    Returns:
      The tests that failed.

    Raises:
      UserError: coverage is not installed, or no test could be run.
    """
    output.mkdir(parents=True, exist_ok=True)
    for path in output.glob("coverage*"):
        path.unlink()
    # Coverage erases what begins with the name of its data.
    config = output / "config.ini"
    config.write_text(_CONFIG.format(output=output, checkout=checkout))
    environment = make_environment(checkout, output)
    environment["COVERAGE_PROCESS_START"] = str(config)
    probe = subprocess.run(
        [sys.executable, "-c", _PROBE],
        env=environment,
        cwd=output,
        capture_output=True,
        check=False,
    )
    if probe.returncode:
        raise UserError(f"expected coverage that sees child processes, found none; {_TO_INSTALL}")
    environment["MUTANTS_SHARING"] = str(output / "sharing")
    (output / "sharing").unlink(missing_ok=True)
    under_coverage = [*(f"--cov={package}" for package in PACKAGES), f"--cov-config={config}"]
    under_coverage += ["--cov-context=test", "--cov-report="]
    run = run_pytest(checkout, output, ["-n", "2", *under_coverage, *words], environment)
    if run.status not in (0, 1) or not run.seconds:
        raise UserError(f"expected pytest to run tests, found exit status {run.status}")
    if list(output.glob("coverage.*.*")):  # from children that ended after pytest
        command = [sys.executable, "-m", "coverage", "combine", "--append", f"--rcfile={config}"]
        # Data of a process that was killed while it wrote them are left out.
        subprocess.run(command, cwd=output, check=False, capture_output=True)
    record = {
        "checkout": str(checkout),
        "sources": _digests(checkout),
        "seconds": run.seconds,
        **_read_sharing(output / "sharing"),
    }
    (output / _RECORD).write_text(json.dumps(record) + "\n")
    return run.failed


def _read_sharing(path: pathlib.Path) -> dict[str, dict[str, list[str]]]:
    uses: dict[str, list[str]] = {}
    borrowers: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        event, borrower, names = json.loads(line)
        if event == "uses":
            uses[borrower] = names
        elif borrower not in borrowers.setdefault(names, []):
            borrowers[names].append(borrower)
    return {"uses": uses, "borrowers": borrowers}


def _digests(checkout: pathlib.Path) -> dict[str, str]:
    return {path: hashlib.sha256(text).hexdigest() for path, text in sources(checkout).items()}


class Measured:
    """What `measure` learned.

    Args:
      output: its directory.
      checkout: the checkout that it ran in.

    Raises:
      UserError: the directory has no data of this checkout as it is now.
    """

    def __init__(self, output: pathlib.Path, checkout: pathlib.Path) -> None:
        try:
            from coverage import CoverageData
        except ImportError as error:
            raise UserError(f"expected coverage, found: {error}; {_TO_INSTALL}") from error
        try:
            record = json.loads((output / _RECORD).read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"{output}: expected data of `measure`, found: {error}") from error
        if record["checkout"] != str(checkout):
            raise UserError(f"{output}: expected data of {checkout}, found {record['checkout']}")
        for path, digest in _digests(checkout).items():
            if record["sources"].get(path) != digest:
                raise UserError(f"{path}: expected what was measured, found a change; measure anew")
        self._checkout = checkout
        self._seconds: dict[str, float] = record["seconds"]
        self._uses: dict[str, list[str]] = record["uses"]
        self._borrowers: dict[str, list[str]] = record["borrowers"]
        self._coverage = CoverageData(str(output / "coverage"))
        self._coverage.read()

    def seconds(self, tests: Iterable[str]) -> float:
        """Return how long tests took, one after another."""
        return sum(self._seconds.get(test, 0.0) for test in tests)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests to try a mutant with, the likeliest to catch it first."""
        path = pathlib.PurePosixPath(mutant.path)
        tests = self._tests_that_run(mutant)
        if self._may_run_unseen(mutant, bool(tests)):
            mirrored = (f"tests/{directory}/" for directory in (path.parent, *path.parent.parents))
            tests |= next(filter(None, map(self._tests_below, mirrored)), set())
            # What is made at import is often used one folder above.
            tests |= self._tests_below(f"tests/{path.parent.parent}/test_")
        mirror = f"tests/{path.parent}/test_{path.name}"

        def rank(test: str) -> tuple[bool, bool, str]:
            is_elsewhere = not test.startswith(f"tests/{path.parent}/")
            return not test.startswith(f"{mirror}::"), is_elsewhere, test

        return sorted(tests & self._seconds.keys(), key=rank)

    def _tests_that_run(self, mutant: Mutant) -> set[str]:
        if mutant.runs_at_import:
            return set()  # which test imports a module first is chance
        for lines in (mutant.lines, mutant.statement):
            tests: set[str] = set()
            for context in self._contexts(mutant.path, lines):
                if match := _CONTEXT.fullmatch(context):
                    name, *phases = match.groups()
                    if "teardown" in phases:  # perhaps of what all tests of the file share
                        tests |= self._tests_below(name.partition("::")[0] + "::")
                    else:
                        tests |= self._users(name)
            if tests:
                return tests
        return set()

    def _users(self, name: str) -> set[str]:
        """Return the tests that depend on what a context has done."""
        kind, _, shared = name.partition(" ")
        if kind == "lent":
            return set().union(*map(self._users, self._borrowers.get(shared, ())))
        if kind == "fixture":
            place, _, fixture = shared.rpartition(" ")
            near = self._tests_below(place)
            return {test for test in near if fixture in self._uses.get(test, ())}
        return {name}

    def _may_run_unseen(self, mutant: Mutant, is_seen: bool) -> bool:
        file = self._checkout / mutant.path
        # A program of its own may be killed at its end, which loses its data.
        if b'__name__ == "__main__"' in file.read_bytes():
            return True
        is_lost = not self._coverage.contexts_by_lineno(str(file))
        is_imported = mutant.runs_at_import or "" in self._contexts(mutant.path, mutant.lines)
        return not is_seen and (is_lost or is_imported)

    def _contexts(self, path: str, lines: tuple[int, int]) -> set[str]:
        contexts = self._coverage.contexts_by_lineno(str(self._checkout / path))
        return {name for line in range(lines[0], lines[1] + 1) for name in contexts.get(line, ())}

    def _tests_below(self, prefix: str) -> set[str]:
        return {test for test in self._seconds if test.startswith(prefix)}
