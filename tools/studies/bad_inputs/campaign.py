"""Runs the bad inputs of each verb, and says what is wrong with how they ended."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib
import json
import multiprocessing
import os
import pathlib
import re
import resource
import runpy
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import psutil

from environments import files
from tfrl_systems.settings import option
from tools.studies.bad_inputs.table import ROWS, Case, cases
from tools.studies.faults.runs import GENERATED
from tools.studies.faults.striking import adopt_orphans
from tools.studies.study import Cell, Record, Study, Table, Trial, total

PROGRAM = "tfrl_systems.cli.main"
TIME_LIMIT_S = 60.0
FAULTS = ("tracebacks", "wrong status", "not one line", "stdout", "files left", "left running",
          "slow")  # fmt: skip
_MEMORY_BYTES = 24 << 30
_OWN_LINE = re.compile(r"tfrl( [a-z_]+)*: ")
# The verbs whose forks would import TensorFlow, each for itself.
_LEARNING = ("train", "bench", "doctor")
# Of <sched.h> and <sys/mount.h>.
_CLONE_NEWNS = 0x20000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18


def run(case: Case, place: pathlib.Path) -> dict[str, Any]:
    """Run a case in a fork of this process.

    Args:
      case: the case.
      place: an empty directory for it; it is removed.

    Returns:
      `what` was wrong with its input, its `words`, the `seconds` that it took, `faults` of its end
      by class (a column of the table), and the end of what it `said`.
    """
    for name in ("case", "home", "tmp"):
        (place / name).mkdir(parents=True)
    case.make_files(place / "case")
    before = _listing(place / "case")
    began_s = time.monotonic()
    child = multiprocessing.get_context("fork").Process(target=_become, args=(case, place))
    child.start()
    # Its descendants may hold what `join` waits for.
    while child.exitcode is None and time.monotonic() - began_s < TIME_LIMIT_S:
        time.sleep(0.005)
    status, seconds = child.exitcode, time.monotonic() - began_s
    faults: dict[str, str] = {}
    if status is None:
        faults["slow"] = f"more than {TIME_LIMIT_S:g} s"
        os.killpg(child.pid or 0, signal.SIGKILL)
        child.join()
    elif status not in case.status:
        faults["wrong status"] = f"expected {case.status}, found {status}"
    if left := _end_others():
        faults["left running"] = left
    said, shown = ((place / name).read_text(errors="replace") for name in ("stderr", "stdout"))
    faults |= faults_of_text(said, shown, status, case.row.reports)
    after = _listing(place / "case")
    may_change = re.compile(f"({case.row.leaves}{'|out.*' * (0 in case.status)})(/.*)?", re.DOTALL)
    changed = sorted(
        name
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name) and not may_change.fullmatch(name)
    )
    temporary = {path.name for path in (place / "tmp").iterdir()}
    # A fork ends without what a program does at its exit.
    changed += [f"$TMPDIR/{name}" for name in temporary if not name.startswith(GENERATED)]
    if changed:
        faults["files left"] = ", ".join(changed[:5])
    shutil.rmtree(place, ignore_errors=True)
    ending = {"what": case.what, "words": case.parsed()[1], "seconds": seconds}
    return {**ending, "faults": faults, "said": said[-1500:]}


def _become(case: Case, place: pathlib.Path) -> None:
    """Go on as the program, in a case's directory."""
    os.setsid()
    if os.getuid() == 0:
        protect_all_but(place)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(place / "case")
    for number, name in enumerate((os.devnull, f"{place}/stdout", f"{place}/stderr")):
        flags = os.O_WRONLY | os.O_CREAT if number else os.O_RDWR
        os.dup2(os.open(name, flags, 0o600), number)
    variables, words = case.parsed()
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("XDG_")},
        **{"HOME": f"{place}/home", "XDG_CACHE_HOME": f"{place}/home/.cache"},
        **{"TMPDIR": f"{place}/tmp", "OMP_NUM_THREADS": "1"},
        **{"PYTHONPATH": str(pathlib.Path(__file__).parents[3]), **variables},
    }
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    # The old ones may have buffered what the parent wrote, or be a test's own.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        errors = getattr(sys, name).errors
        setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False, errors=errors))
    sys.argv = ["tfrl", *words]
    runpy.run_module(PROGRAM, run_name="__main__")


def protect_all_but(directory: pathlib.Path) -> None:
    """Make files read-only for this process and its children, except those below a directory.

    For root: a fault that bad inputs find may be one that deletes what it should not.

    Raises:
      RuntimeError: this is not permitted here.
    """
    place, libc = str(directory.resolve()).encode(), ctypes.CDLL(None)
    mounts = (
        (None, b"/", _MS_REC | _MS_PRIVATE),
        (place, place, _MS_BIND),
        (None, b"/", _MS_REMOUNT | _MS_BIND | _MS_RDONLY),
    )
    was_split = libc.unshare(_CLONE_NEWNS) == 0
    if not was_split or any(libc.mount(at, on, None, flags, None) for at, on, flags in mounts):
        raise RuntimeError("expected to be able to protect files, found no right to; use no root")


def _end_others() -> str:
    """End the processes that the case left, which are this process's now; return what they are."""
    names = []
    while children := psutil.Process().children():
        _, left = psutil.wait_procs(children, timeout=2.0)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                names.append(" ".join(process.cmdline())[:80])
                process.kill()
    return "; ".join(names)


def faults_of_text(
    said: str, shown: str, status: int | None, reports: bool = False
) -> dict[str, str]:
    """Return what is wrong with what a case wrote to stderr and stdout.

    One line is the program's own and says what is wrong: it begins with `tfrl: ` or
    `tfrl VERB: error: `. It is the last one, unless the usage, or a list of what exists, follows.
    """
    faults: dict[str, str] = {}
    if status == 0 and "Traceback (" not in said:
        return faults
    lines = [line for line in re.split(r"[\r\n]+", said) if line.strip()]
    own = [line for line in lines if _OWN_LINE.match(line)]
    if "Traceback (" in said:
        faults["tracebacks"] = lines[-1][:200]
    elif reports and status != 2:
        if not shown.strip():
            faults["stdout"] = "nothing, where a report should be"
    elif len(own) != 1:
        faults["not one line"] = f"{len(own)} lines begin with tfrl: {lines[-1:]}"
    elif status != 2 and lines[-1] != own[0]:
        faults["not one line"] = f"found after it: {lines[-1][:200]}"
    if shown.strip():
        try:
            json.loads(shown)
        except ValueError:
            faults["stdout"] = shown[:100]
    return faults


def _listing(directory: pathlib.Path) -> dict[str, str]:
    """Return what is in a directory: kind and content of each entry, by its relative name."""
    entries = {}
    for path in directory.rglob("*"):
        about, content = path.lstat(), ""
        if stat.S_ISLNK(about.st_mode):
            content = str(path.readlink())
        elif stat.S_ISREG(about.st_mode) and about.st_size < 1 << 28:
            content = files.sha256(path)
        entries[str(path.relative_to(directory))] = f"{stat.S_IFMT(about.st_mode)} {content}"
    return entries


@dataclasses.dataclass(frozen=True, kw_only=True)
class BadInputs:
    """What is tried.

    Attributes:
      verbs: a verb; may be repeated.
      seed: of the damage.
      every: run every N-th case only.
    """

    verbs: tuple[str, ...] = option(tuple(ROWS), flag="--verb", metavar="VERB", choices=tuple(ROWS))
    seed: int = option(0, metavar="S", minimum=0)
    every: int = option(1, metavar="N", minimum=1)


def _trials(options: BadInputs) -> Iterator[Trial]:
    for verb in options.verbs:
        about = {"verb": verb, "seed": options.seed, "every": options.every}
        yield Trial(verb.replace(" ", "-"), about)


def _measure(about: Record, _: pathlib.Path) -> Record:
    """Run the cases of a verb, each in a fork of this process, which adopts what they leave."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    learning = ["tfrl_systems.training.online"] if about["verb"] in _LEARNING else []
    for name in (PROGRAM, "onnxruntime", *learning):
        importlib.import_module(name)
    adopt_orphans()
    chosen = cases(about["verb"], about["seed"])[:: about["every"]]
    with tempfile.TemporaryDirectory(prefix="bad-") as scratch:
        endings = [run(case, pathlib.Path(scratch) / str(k)) for k, case in enumerate(chosen)]
    return {"cases": len(endings), "wrong": [ending for ending in endings if ending["faults"]]}


def _ending_with(fault: str) -> Cell:
    return total(lambda record: sum(fault in ending["faults"] for ending in record["wrong"]))


BAD_INPUTS = Study(
    """Bad inputs for every verb: each must end in one line, with the right exit status.

A case passes if it ends in one line within 60 s, with the right status, and leaves no file and no
process. What is wrong with a cache, or with what surrounds `build` and `doctor`, is no failure of
theirs: they have to go on, and --json has to be JSON.""",
    BadInputs,
    _trials,
    _measure,
    [
        Table(
            "Cases by verb, and what was wrong with how they ended.",
            ("verb",),
            {
                "cases": total("cases"),
                "passed": total(lambda record: record["cases"] - len(record["wrong"])),
                **{fault: _ending_with(fault) for fault in FAULTS},
            },
            derive=lambda records: [*records, *({**record, "verb": "all"} for record in records)],
            label="verb",
        )
    ],
    is_wrong=lambda record: bool(record["wrong"]),
    is_alone=True,
)
