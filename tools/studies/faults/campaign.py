"""Break real runs of tfrl on purpose, at random moments, and see that nothing is lost."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from tfrl_systems.settings import option
from tools.studies import study
from tools.studies.faults import striking
from tools.studies.faults.runs import Attempt, Quiet, Record, Run, files_of
from tools.studies.faults.scenarios import SCENARIOS, WITH_RAY, Place, Scenario
from tools.studies.study import Study, Table, total

# Every attempt of a worker to start, or of a chunk to be collected, was struck.
_GAVE_UP = re.compile(r"^tfrl: (workers: |\d+ of \d+ chunks failed)", re.MULTILINE)
# What a user is told to remove after a file of the run was damaged.
_REMEDY = re.compile(r"; remove (the run's directory|\S+/checkpoints/\d+) ")
# The cluster of this machine was lost, or did not start.
_WITHOUT_CLUSTER = re.compile(r"^tfrl: collect: ", re.MULTILINE)
# Ray's reports, and its log. What befalls workers and a cluster is told in tfrl's words.
_SAID_BY_RAY = re.compile(r"\(raylet\)|^\[[-\d]{10} [\d:,]+ [IWEF] ", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
_MAX_FAULTS_OF_THE_HEAD = 3


def run_quietly(scenario: Scenario, place: Place) -> Quiet:
    """Run a scenario without faults.

    Raises:
      RuntimeError: it fails, or leaves something behind, even so.
    """
    record = Record(0, scenario.name)
    run = Run(scenario, place, record)
    began_s = time.monotonic()
    status = run.start().wait()
    seconds = time.monotonic() - began_s
    said = run.clean_up()
    if status or record.left:
        raise RuntimeError(f"{scenario.name}: status {status}, left {record.left}; {said}")
    return Quiet(scenario.end(place), files_of(place), seconds)


def run_trial(
    scenario: Scenario, quiet: Quiet, place: Place, number: int, seed: int, kinds: Collection[str]
) -> Record:
    """Run a scenario with faults, which the seed and the trial's number decide.

    `kinds` are the kinds of faults of the head that are possible here.
    """
    random = np.random.default_rng(np.random.SeedSequence([seed, number]))
    record = Record(number, scenario.name)
    possible = [kind for kind in scenario.head_faults if kind in kinds]
    num_faults = int(random.integers(1, _MAX_FAULTS_OF_THE_HEAD + 1))
    faults = [str(random.choice(possible)) for _ in range(num_faults)]
    with striking.mounted(place.root) if "disk_full" in faults else contextlib.nullcontext():
        run = Run(scenario, place, record)
        try:
            record.failures += _strike_until_done(run, quiet, faults, random)
            if not record.failures:
                _compare(run, quiet)
        finally:
            striking.end(run.mark)
        if not record.is_good:
            copy = pathlib.Path(f"{place.root}-kept")
            shutil.copytree(place.root, copy, symlinks=True, dirs_exist_ok=True)
    return record


def _strike_until_done(
    run: Run, quiet: Quiet, faults: Sequence[str], random: np.random.Generator
) -> list[str]:
    """Start the command until it has ended by itself, with one fault of the head each time.

    Returns:
      What went wrong.
    """
    # Faults that did not hit are not tried again without end.
    attempts = [*faults, *[""] * (2 * _MAX_FAULTS_OF_THE_HEAD + 2 - len(faults))]
    for fault in attempts:
        status = Attempt(run, quiet, fault, random).run()
        said = run.clean_up()
        if run.record.failures:
            return []
        is_expected = status == 0 or _is_expected(run, fault, status, said)
        if _SAID_BY_RAY.search(said) or not is_expected:
            return [f"after {fault or 'workers only'}: status {status}, {said[-600:]}"]
        if status == 0:
            return []
    return ["the command did not come to its end"]


def _is_expected(run: Run, fault: str, status: int, said: str) -> bool:
    """Return whether a command may end so; do what it tells its user to do."""
    if fault in ("interrupt", "terminate"):
        return True
    if status == 1 and _TRACEBACK in said.rpartition("\ntfrl: ")[2]:
        return False
    if status == 1 and _GAVE_UP.search(said):
        run.record.gave_up += 1
        return True
    if status == 1 and run.was_damaged and (remedy := _REMEDY.search(said)):
        # "the run's directory", or a path.
        place = run.place.work / "run" if "'" in remedy[1] else pathlib.Path(remedy[1])
        shutil.rmtree(place, ignore_errors=True)
        return True
    if fault == "vanish_node":
        return status == 1 and bool(_WITHOUT_CLUSTER.search(said))
    return bool(fault)


def _compare(run: Run, quiet: Quiet) -> None:
    """Compare the end of a trial with the quiet run's."""
    record = run.record
    try:
        end = run.scenario.end(run.place)
    except OSError as error:
        record.failures.append(f"nothing to compare: {error}")
        return
    names = [name for name in {**quiet.end, **end} if quiet.end.get(name) != end.get(name)]
    record.failures += [f"{name}: {quiet.end.get(name)} became {end.get(name)}" for name in names]
    record.lost = sum(name in quiet.end and name not in end for name in names)
    if "environment_steps" in names and "environment_steps" in end:
        record.lost += abs(quiet.end["environment_steps"] - end["environment_steps"])
    new = sorted(set(files_of(run.place)) - set(quiet.files))
    record.left += [f"file: {name}" for name in new]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Faults:
    """How much is broken.

    Attributes:
      scenarios: a command to run; may be repeated. By default those without Ray.
      trials: how many, of the scenarios in turn.
      only: the number of a trial, to run it alone.
      seed: decides all faults, with the number of a trial.
    """

    scenarios: tuple[str, ...] = option(
        tuple(name for name in SCENARIOS if "ray" not in name),
        flag="--scenario",
        metavar="NAME",
        choices=tuple(SCENARIOS),
    )
    trials: int = option(100, metavar="N", minimum=1)
    only: int | None = option(None, metavar="N", minimum=0)
    seed: int = option(0, metavar="S", minimum=0)


def _trials(options: Faults) -> Iterator[study.Trial]:
    for number in range(options.trials) if options.only is None else (options.only,):
        name = options.scenarios[number % len(options.scenarios)]
        about = {"scenario": name, "number": number, "seed": options.seed}
        yield study.Trial(f"{number:04d}-{name}", about)


def _measure(about: study.Record, workdir: pathlib.Path) -> study.Record:
    """Run a trial, and before it once without faults, which the trials of a scenario share."""
    striking.adopt_orphans()
    # A shell has what it starts in the background ignore Ctrl-C; commands must not inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    scenario = SCENARIOS[about["scenario"]]
    shared = workdir.parent / f"quiet-{scenario.name}"
    # Ray's sockets are below the place, and their paths may not be long.
    root = pathlib.Path(tempfile.mkdtemp(prefix="fc-", dir="/tmp"))
    place = Place(root / "p", shared / "inputs")
    quiet = _quiet_run(scenario, place, shared / "quiet.json")
    kinds = {*WITH_RAY} - (set() if striking.may_mount(root / "probe") else {"disk_full"})
    record = run_trial(scenario, quiet, place, about["number"], about["seed"], kinds)
    if record.is_good:
        shutil.rmtree(root, ignore_errors=True)
    files = "" if record.is_good else str(root)
    return {**dataclasses.asdict(record), "struck": dict(record.struck), "files": files}


def _quiet_run(scenario: Scenario, place: Place, path: pathlib.Path) -> Quiet:
    """Return how a scenario ends when nothing is broken; `path` keeps it for the next trial."""
    if not path.exists():
        shutil.rmtree(place.inputs, ignore_errors=True)
        place.inputs.mkdir(parents=True)
        scenario.prepare(place.inputs)
        quiet = run_quietly(scenario, place)
        shutil.rmtree(place.root, ignore_errors=True)
        path.write_text(json.dumps(dataclasses.asdict(quiet)), encoding="utf-8")
    return Quiet(**json.loads(path.read_text(encoding="utf-8")))


def _struck(record: study.Record) -> int:
    return sum(record["struck"].values())


def _by_kind(records: study.Records) -> Iterator[study.Record]:
    struck = (item for record in records for item in record["struck"].items())
    yield from ({"kind": kind, "hit": hit} for kind, hit in sorted(struck))


def _is_wrong(record: study.Record) -> bool:
    return bool(record["failures"] or record["left"] or record["lost"])


_COUNTS: dict[str, Any] = {
    "faults": total(_struck),
    "trials": total(lambda record: 1),
    "started again": total(lambda record: record["starts"] - 1),
    "gave up": total("gave_up"),
    "lost": total("lost"),
    "differ": total(lambda record: bool(record["failures"])),
    "left behind": total(lambda record: len(record["left"])),
}
FAULTS = Study(
    """Break real runs of tfrl on purpose, at random moments, and see that nothing is lost.

A trial runs a command (`scenarios.py`), strikes its processes, files and disk
(`striking.py`) until the command has come to its end, started again where it has to be, and
compares that end with a run in which nothing was broken. The seed and the number of a trial decide
what strikes when, so --only N runs one again. The exit status is 1 if anything was lost, differs,
or was left behind; the trial's files are then kept. "gave up" counts commands that ended, with one
line, because each of several attempts to start a worker or to run a chunk was struck.

A hung worker stays stopped until --chunk-timeout has it replaced. A node vanishes only from a
cluster of this machine alone. Where this user may not mount a file system, no disk is full.""",
    Faults,
    _trials,
    _measure,
    [
        Table(
            "Trials by scenario.",
            ("scenario",),
            _COUNTS,
            derive=lambda records: [
                *records,
                *({**record, "scenario": "all"} for record in records),
            ],
        ),
        Table("Faults that hit.", ("kind",), {"hit": total("hit")}, derive=_by_kind, label="kind"),
    ],
    is_wrong=_is_wrong,
)
