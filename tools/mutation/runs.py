"""Runs of pytest in a checkout, and what they report."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from environments.errors import UserError
from tools.benchmarks.faults import processes

PACKAGES = ("environments", "tfrl_systems")
_PLUGIN = "mutants_plugin"


def files_of(checkout: pathlib.Path) -> list[str]:
    """Return the files of a checkout that git does not ignore, relative to it.

    Raises:
      UserError: it is not a git checkout.
    """
    command = ["git", "-C", str(checkout), "ls-files", "-z"]
    command += ["--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False)
    if listing.returncode:
        raise UserError(f"{checkout}: expected a git checkout, found: {listing.stderr.strip()}")
    return [name for name in listing.stdout.split("\0") if name and (checkout / name).is_file()]


def sources(checkout: pathlib.Path) -> dict[str, bytes]:
    """Return the Python files of both packages, by their paths in a checkout.

    Raises:
      UserError: it is not a git checkout.
    """
    return {
        path: (checkout / path).read_bytes()
        for path in files_of(checkout)
        if path.endswith(".py") and path.partition("/")[0] in PACKAGES
    }


class Run(NamedTuple):
    """What a run of pytest reported.

    Attributes:
      status: its exit status; None if it was still running at its time limit.
      seconds: how long each test took, whatever came of it.
      failed: tests that failed, and files that could not be collected.
      hung: tests that had begun when the run was ended.
      log: what pytest wrote, if it had a time limit.
    """

    status: int | None
    seconds: dict[str, float]
    failed: list[str]
    hung: list[str]
    log: str = ""

    @classmethod
    def read(cls, status: int | None, report: pathlib.Path, log: str = "") -> Run:
        """Read what the plugin wrote."""
        seconds: dict[str, float] = {}
        failed, begun = [], {}
        for line in report.read_text(encoding="utf-8").splitlines() if report.exists() else ():
            event, test, duration_s = json.loads(line)
            if event == "start":
                begun[test] = True
            elif event == "finish":
                begun.pop(test, None)
            else:
                seconds[test] = seconds.get(test, 0.0) + duration_s
            if event == "failed":
                failed.append(test)
        return cls(status, seconds, failed, list(begun), log)

    @property
    def message(self) -> str:
        """Return the last line of the log."""
        return self.log.strip().rpartition("\n")[2]


def run_pytest(
    root: pathlib.Path,
    scratch: pathlib.Path,
    words: Iterable[str],
    environment: Mapping[str, str],
    limit_s: float | None = None,
) -> Run:
    """Run pytest in two processes.

    Args:
      root: the checkout to run it in.
      scratch: a directory for the report and the log.
      words: further arguments.
      environment: as `make_environment` returns it.
      limit_s: after this time it is killed; without a limit it writes to stdout and not to a log.
    """
    report, log = scratch / "report", scratch / "log"
    report.unlink(missing_ok=True)
    shutil.copy(pathlib.Path(__file__).with_name("plugin.py"), scratch / f"{_PLUGIN}.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", _PLUGIN, "--dist", "worksteal", *words]
    status = None
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=root,
            env={**environment, "MUTANTS_REPORT": str(report)},
            stdin=subprocess.DEVNULL,
            stdout=None if limit_s is None else output,
            stderr=None if limit_s is None else subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(limit_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            # Tests start processes in groups of their own.
            processes.end(environment[processes.MARK])
    return Run.read(status, report, log.read_text(encoding="utf-8", errors="replace"))


def make_environment(root: pathlib.Path, scratch: pathlib.Path) -> dict[str, str]:
    """Return the variables of processes that import a checkout's packages, not those installed.

    Args:
      root: the checkout.
      scratch: the directory of `run_pytest`, which also marks all processes.

    Raises:
      UserError: a child process imports other packages all the same.
    """
    own = ("PYTEST_", "COVERAGE_", "PYTHONDONTWRITEBYTECODE")
    variables = {name: text for name, text in os.environ.items() if not name.startswith(own)}
    search_path = (str(root), str(scratch), variables.get("PYTHONPATH"))
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, search_path))
    variables[processes.MARK] = str(scratch)
    script = "import environments, tfrl_systems as t; print(environments.__file__, t.__file__)"
    child = subprocess.run(
        [sys.executable, "-c", script],
        cwd=scratch,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    paths = child.stdout.split()
    if paths != [str(root / package / "__init__.py") for package in PACKAGES]:
        message = child.stdout.strip() or child.stderr.strip().rpartition("\n")[2]
        raise UserError(f"{root}: expected that children import its packages, found: {message}")
    return variables
