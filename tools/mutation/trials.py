"""Trials of mutants: a suite runs in a copy of its checkout, with one file changed at a time."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tools.mutation.measuring import Measured
from tools.mutation.places import Mutant
from tools.mutation.runs import Run, files_of, make_environment, run_pytest

# Tests have at most this many times as long as when they were measured, and the limit of the user.
_MAX_SLOWDOWN = 3.0


class Suite:
    """The tests of a checkout, and a copy to try mutants in.

    Args:
      checkout: its root.
      measured: which of its tests run which lines.
      scratch: an empty directory, with a short path because Ray's sockets are named after it.
      limit_s: how long the tests of a mutant may take, beside three times their measured time.

    Raises:
      UserError: the checkout is not git's, or its packages cannot be imported.
    """

    def __init__(
        self, checkout: pathlib.Path, measured: Measured, scratch: pathlib.Path, limit_s: float
    ) -> None:
        self._measured, self._scratch, self._limit_s = measured, scratch, limit_s
        self._copy = scratch / "copy"
        for name in files_of(checkout):
            (self._copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, self._copy / name)
        self._environment = make_environment(self._copy, scratch)
        self._failing: set[str] = set()
        self._time_s = int(time.time())

    def judge(self, mutant: Mutant) -> dict[str, Any]:
        """Return a mutant's verdict as JSON values."""
        tests = self._measured.tests_of(mutant)
        while tests := [test for test in tests if test not in self._failing]:
            began_s = time.monotonic()
            with self._planted(mutant):
                # Each process gets half of the list; both begin with what is likeliest to fail.
                run = self._run([*tests[::2], *tests[1::2]], "-x")
            seconds = round(time.monotonic() - began_s, 1)
            verdict = {"num_tests": len(tests), "seconds": seconds}
            if run.status == 0:
                return {"verdict": "survived", **verdict}
            names = run.failed or run.hung
            if names and "::" not in names[0]:
                names = names[:1]  # a file that cannot be imported, as perhaps many others
            control = self._run_again(tests, names)
            broken = [*control.failed, *control.hung]
            sound = [name for name in names if name not in broken]
            if control.status == 0 or (broken and sound):
                by = (sound or [run.message])[0]
                is_late = run.status is None and not run.failed
                return {"verdict": "caught", "by": by, "timed_out": is_late, **verdict}
            failing = _named(tests, broken) + self._missing(tests, control)
            if not failing:
                return {"verdict": "not judged", "by": control.message, **verdict}
            self._failing.update(failing)
        return {"verdict": "not run"}

    def _run_again(self, tests: Sequence[str], names: Sequence[str]) -> Run:
        """Run without a mutant what failed with it.

        Args:
          tests: what was run with it.
          names: the tests and files that failed; without any, pytest itself failed.
        """
        suspects = _named(tests, names)
        if not suspects:
            return self._run(tests, "-n", "0", "--collect-only")
        return self._run(suspects if "::" in names[0] else suspects[:1])

    def _missing(self, tests: Sequence[str], run: Run) -> list[str]:
        """Return the tests that are no more, such as those named by a random number."""
        return [test for test in tests if f"ERROR: not found: {self._copy / test}\n" in run.log]

    @contextlib.contextmanager
    def _planted(self, mutant: Mutant) -> Iterator[None]:
        path = self._copy / mutant.path
        source = path.read_bytes()
        try:
            self._write(path, mutant.apply(source))
            yield
        finally:
            self._write(path, source)

    def _write(self, path: pathlib.Path, content: bytes) -> None:
        path.write_bytes(content)
        # A .pyc file is valid for a time in whole seconds and a size, which may both stay the same.
        self._time_s += 1
        os.utime(path, (self._time_s, self._time_s))

    def _run(self, tests: Sequence[str], *words: str) -> Run:
        # Examples that failed with one mutant would be tried with the next one.
        shutil.rmtree(self._copy / ".hypothesis", ignore_errors=True)
        listing = self._scratch / "tests"
        listing.write_text("".join(f"{test}\n" for test in tests), encoding="utf-8")
        # The tests are named, so that marks deselect none of them.
        words = ("-n", str(min(2, len(tests))), "-m", "", *words, f"@{listing}")
        limit_s = self._limit_s + _MAX_SLOWDOWN * self._measured.seconds(tests)
        return run_pytest(self._copy, self._scratch, words, self._environment, limit_s)


def _named(tests: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the tests that are named, or whose file is."""
    return [test for test in tests if test in names or test.partition("::")[0] in names]
