"""Run bad inputs and print the table; see the package."""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import ctypes
import dataclasses
import importlib
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from tfrl_systems.drivers.processes import adopt_orphans
from tools.benchmarks.bad_inputs import verbs
from tools.benchmarks.bad_inputs.case import Case
from tools.benchmarks.bad_inputs.running import PROGRAM, Ending, run

_CLONE_NEWNS = 0x20000
_FRESH = 5
IMPORTED = (PROGRAM, "onnxruntime")
_SYSTEMS = "tfrl_systems.systems"
IMPORTED_BY = {
    "train": ("tfrl_systems.training.online",),
    "optimize": (f"{_SYSTEMS}.tensor_graphs.optimize.optimization",),
    "build": (f"{_SYSTEMS}.inlining.steered_build",),
    "bench": ("tfrl_systems.training.online", f"{_SYSTEMS}.tensor_graphs.bench"),
    "doctor": ("tfrl_systems.training.online", "tfrl_systems.cli.doctor_checks"),
}
COLUMNS = (
    "tracebacks", "wrong status", "not one line", "stdout", "files left", "left running", "slow",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases; return 1 if one of them ends wrongly."""
    parser = argparse.ArgumentParser(prog="bad_inputs", description=__doc__)
    parser.add_argument(
        "--verb", action="append", choices=tuple(verbs.VERBS), help="(default: all)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the damage")
    parser.add_argument("--every", type=int, default=1, help="run every N-th case only")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time (default: 2)")
    parser.add_argument("--json", action="store_true", help="print every case as JSON")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bad-") as scratch:
        found = run_all(
            options.verb or list(verbs.VERBS),
            options.seed,
            pathlib.Path(scratch),
            every=options.every,
            jobs=options.jobs,
        )
    for one in found:
        if one.faults:
            print(f"{one.verb}: {one.what}: {one.faults}\n    {one.words}", file=sys.stderr)
            last = one.said.strip().splitlines()[-3:]
            print("".join(f"    | {line[:300]}\n" for line in last), file=sys.stderr)
    if options.json:
        print(json.dumps([dataclasses.asdict(one) for one in found], indent=1))
    else:
        print(table(found))
    return int(any(one.faults for one in found))


def run_all(
    names: Sequence[str], seed: int, scratch: pathlib.Path, *, every: int = 1, jobs: int = 2
) -> list[Ending]:
    """Run the cases of some verbs.

    Args:
      names: the verbs.
      seed: of the damage.
      scratch: a directory for the cases.
      every: run only every n-th case of each verb.
      jobs: how many cases run at a time.
    """
    asked: list[tuple[str, Case, pathlib.Path, bool]] = []
    for name in names:
        cases = verbs.VERBS[name](seed, scratch)[::every]
        fresh = max(1, len(cases) // _FRESH)
        for number, case in enumerate(cases):
            # No system passes a zero byte to a program; a caller of `main` can.
            is_fresh = number % fresh == fresh - 1 and "\0" not in "".join(case.words)
            asked.append((name, case, scratch / f"{len(asked)}", is_fresh))
    _import_everything(names)
    context = multiprocessing.get_context("fork")
    # The cases hold functions, which only a fork can take along.
    with concurrent.futures.ProcessPoolExecutor(jobs, context, _begin, (asked, scratch)) as pool:
        return list(pool.map(_run, range(len(asked))))


_ASKED: list[tuple[str, Case, pathlib.Path, bool]] = []


def _run(number: int) -> Ending:
    verb, case, place, is_fresh = _ASKED[number]
    return run(verb, case, place, is_fresh=is_fresh)


def _begin(asked: list[tuple[str, Case, pathlib.Path, bool]], scratch: pathlib.Path) -> None:
    """Become the parent of what a case leaves behind, to find it and to end it."""
    _ASKED.extend(asked)
    adopt_orphans()
    if os.getuid() == 0:
        protect_all_but(scratch)


def protect_all_but(scratch: pathlib.Path) -> None:
    """Make files read-only for this process and its children, except those below a directory.

    For root: a fault that bad inputs find may be one that deletes what it should not.

    Raises:
      RuntimeError: this is not permitted here.
    """
    place = str(scratch.resolve())
    mounts = (
        ["--make-rprivate", "/"],
        ["--bind", place, place],
        ["-o", "remount,bind,ro", "/"],
    )
    was_split = ctypes.CDLL(None).unshare(_CLONE_NEWNS) == 0
    if not was_split or any(subprocess.run(["mount", *one]).returncode for one in mounts):
        raise RuntimeError("expected to be able to protect files, found no right to; use no root")


def _import_everything(asked: Sequence[str]) -> None:
    """Import what the verbs import, so that a fork need not; nothing of it is run."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    for name in (*IMPORTED, *(name for one in asked for name in IMPORTED_BY.get(one, ()))):
        importlib.import_module(name)


def table(found: Sequence[Ending]) -> str:
    """Return the table of how the cases ended."""
    of_verb: dict[str, list[Ending]] = collections.defaultdict(list)
    for one in found:
        of_verb[one.verb].append(one)
    lines = [f"| verb | cases | passed | {' | '.join(COLUMNS)} |"]
    lines.append(f"| --- |{' ---: |' * (len(COLUMNS) + 2)}")
    for verb, ends in [*of_verb.items(), ("all", list(found))]:
        cells = [verb, len(ends), sum(not one.faults for one in ends)]
        cells += [sum(column in one.faults for one in ends) for column in COLUMNS]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
