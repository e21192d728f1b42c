"""One trial: a command is struck again and again until it has ended, and its end is compared."""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
import time
from collections.abc import Iterator

import numpy as np

from tools.benchmarks.faults import processes, striking
from tools.benchmarks.faults.attempts import Attempt
from tools.benchmarks.faults.runs import Quiet, Record, Run, files_of
from tools.benchmarks.faults.scenarios import Place, Scenario

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
    head = run.start()
    status = head.wait()
    seconds = time.monotonic() - began_s
    run.clean_up()
    if status or record.left:
        raise RuntimeError(f"{scenario.name}: status {status}, left {record.left}; {run.said()}")
    return Quiet(scenario.end(place), files_of(place), seconds)


def run_trial(
    scenario: Scenario,
    quiet: Quiet,
    place: Place,
    number: int,
    seed: int,
    kinds: frozenset[str],
    library: pathlib.Path | None,
) -> Record:
    """Run a scenario with faults, which the seed and the trial's number decide.

    Args:
      scenario: what to run.
      quiet: how it ends when nothing is broken.
      place: where to run it.
      number: number of the trial.
      seed: the campaign's.
      kinds: kinds of faults of the head that are possible here.
      library: see `striking.make_clock_library`.

    Returns:
      What came of it.
    """
    random = np.random.default_rng(np.random.SeedSequence([seed, number]))
    record = Record(number, scenario.name)
    began_s = time.monotonic()
    possible = [kind for kind in scenario.head_faults if kind in kinds]
    num_faults = int(random.integers(1, _MAX_FAULTS_OF_THE_HEAD + 1))
    faults = [str(random.choice(possible)) for _ in range(num_faults)]
    with contextlib.ExitStack() as stack:
        if "disk_full" in faults:
            stack.enter_context(striking.mounted(place.root))
        clock = None
        if "clock_jump" in faults:
            assert library is not None
            clock = striking.Clock(place.inputs / f"clock-{place.root.name}", library)
        run = Run(scenario, place, record, clock)
        with _ending(run):
            _strike_until_done(run, quiet, faults, random)
            _compare(run, quiet)
        run.forget()
        if not record.is_good:
            kept = pathlib.Path(f"{place.root}-kept")
            shutil.copytree(place.root, kept, symlinks=True, dirs_exist_ok=True)
    record.seconds = time.monotonic() - began_s
    return record


@contextlib.contextmanager
def _ending(run: Run) -> Iterator[None]:
    try:
        yield
    finally:
        processes.end(run.mark)


def _strike_until_done(
    run: Run, quiet: Quiet, faults: list[str], random: np.random.Generator
) -> None:
    """Start the command until it has ended by itself, with one fault of the head each time."""
    faults = list(faults)
    # Faults that did not hit are not tried again without end.
    for _ in range(2 * _MAX_FAULTS_OF_THE_HEAD + 2):
        fault = faults.pop(0) if faults else ""
        status = Attempt(run, quiet, fault, random).run()
        run.clean_up()
        said = run.said()
        run.forget()
        if _SAID_BY_RAY.search(said):
            run.record.failures.append(f"after {fault or 'workers only'}: Ray said {said[-600:]}")
            return
        if status == 0 and not run.place.root.joinpath("filler").exists():
            return
        expected = bool(fault)
        if fault == "vanish_node":
            expected = status == 1 and bool(_WITHOUT_CLUSTER.search(said))
        if status == 1 and _GAVE_UP.search(said):
            run.record.gave_up += 1
            expected = True
        if run.was_damaged and status == 1 and (remedy := _REMEDY.search(said)):
            shutil.rmtree(_place_of(remedy[1], run), ignore_errors=True)
            expected = True
        is_signal = fault in ("interrupt", "terminate")
        if (
            not expected or status == 1 and _TRACEBACK in said.rpartition("\ntfrl: ")[2]
        ) and not is_signal:
            run.record.failures.append(
                f"after {fault or 'workers only'}: status {status}, {said[-600:]}"
            )
            return
    run.record.failures.append("the command did not come to its end")


def _place_of(words: str, run: Run) -> pathlib.Path:
    return run.place.work / "run" if "'" in words else pathlib.Path(words)


def _compare(run: Run, quiet: Quiet) -> None:
    """Compare the end of a trial with the quiet run's."""
    record = run.record
    if record.failures:
        return
    try:
        found = run.scenario.end(run.place)
    except OSError as error:
        record.failures.append(f"nothing to compare: {error}")
        return
    names = [name for name in {**quiet.end, **found} if quiet.end.get(name) != found.get(name)]
    record.failures += [f"{one}: {quiet.end.get(one)} became {found.get(one)}" for one in names]
    record.lost = sum(name in quiet.end and name not in found for name in names)
    if "environment_steps" in names and "environment_steps" in found:
        record.lost += abs(quiet.end["environment_steps"] - found["environment_steps"])
    record.left += [f"file: {name}" for name in sorted(files_of(run.place) - quiet.files)]
