"""Runs the bad inputs of each verb, some of them in a new interpreter each."""

from __future__ import annotations

import concurrent.futures
import ctypes
import dataclasses
import importlib
import multiprocessing
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator, Sequence

from tfrl_systems.drivers.processes import adopt_orphans
from tfrl_systems.settings import option
from tools.studies.bad_inputs import running
from tools.studies.bad_inputs.table import ROWS, Case, cases
from tools.studies.study import Cell, Record, Records, Study, Table, Trial, total

_CLONE_NEWNS = 0x20000
_FRESH = 5
# The verbs whose forks would import TensorFlow, each for itself.
_LEARNING = ("train", "bench", "doctor")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BadInputs:
    """What is tried.

    Attributes:
      verbs: a verb; may be repeated.
      seed: of the damage.
      every: run every N-th case only.
      processes: cases at a time.
    """

    verbs: tuple[str, ...] = option(tuple(ROWS), flag="--verb", metavar="VERB", choices=tuple(ROWS))
    seed: int = option(0, metavar="S", minimum=0)
    every: int = option(1, metavar="N", minimum=1)
    processes: int = option(2, metavar="N", minimum=1)


def _trials(options: BadInputs) -> Iterator[Trial]:
    for verb in options.verbs:
        about = {"seed": options.seed, "every": options.every, "processes": options.processes}
        yield Trial(verb.replace(" ", "-"), {"verb": verb, **about})


def _measure(about: Record, _: pathlib.Path) -> Record:
    with tempfile.TemporaryDirectory(prefix="bad-") as scratch:
        endings = run_all(
            about["verb"], about["seed"], pathlib.Path(scratch), about["every"], about["processes"]
        )
    return {
        "cases": len(endings),
        "wrong": [dataclasses.asdict(ending) for ending in endings if ending.faults],
    }


_Task = tuple[str, Case, pathlib.Path, bool]
_tasks: list[_Task] = []


def run_all(
    verb: str, seed: int, scratch: pathlib.Path, every: int = 1, processes: int = 2
) -> Sequence[running.Ending]:
    """Run the cases of a verb.

    Args:
      verb: its name.
      seed: of the damage.
      scratch: a directory for the cases.
      every: run only every n-th case.
      processes: how many cases run at a time.
    """
    chosen = cases(verb, seed, scratch / "shared")[::every]
    fresh = max(1, len(chosen) // _FRESH)
    tasks = [
        # No system passes a zero byte to a program; a caller of `main` can.
        (verb, case, scratch / str(k), k % fresh == fresh - 1 and "\0" not in "".join(case.words))
        for k, case in enumerate(chosen)
    ]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    learning = ["tfrl_systems.training.online"] if verb in _LEARNING else []
    for name in (running.PROGRAM, "onnxruntime", *learning):
        importlib.import_module(name)
    context = multiprocessing.get_context("fork")
    # The cases hold functions, which only a fork can take along.
    with concurrent.futures.ProcessPoolExecutor(processes, context, _begin, (tasks, scratch)) as p:
        return list(p.map(_run, range(len(tasks))))


def _run(number: int) -> running.Ending:
    verb, case, place, is_fresh = _tasks[number]
    return running.run(verb, case, place, is_fresh=is_fresh)


def _begin(tasks: list[_Task], scratch: pathlib.Path) -> None:
    """Become the parent of what a case leaves behind, to find it and to end it."""
    _tasks.extend(tasks)
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
    if not was_split or any(subprocess.run(["mount", *words]).returncode for words in mounts):
        raise RuntimeError("expected to be able to protect files, found no right to; use no root")


def _with_all(records: Records) -> Iterator[Record]:
    yield from records
    yield from ({**record, "verb": "all"} for record in records)


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
                **{fault: _ending_with(fault) for fault in running.FAULTS},
            },
            derive=_with_all,
            label="verb",
        )
    ],
    is_wrong=lambda record: bool(record["wrong"]),
    is_alone=True,
)
