"""One trial: a command is struck again and again until it has ended, and its end is compared."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tools.benchmarks.faults import processes, striking
from tools.benchmarks.faults.scenarios import Place, Scenario

# How long what a command started may live on after it.
GRACE_S = 10.0
_POLL_S = 0.02
_SIGNALS = {
    **{"kill": signal.SIGKILL, "interrupt": signal.SIGINT, "terminate": signal.SIGTERM},
    **{"truncate_file": signal.SIGKILL, "flip_bit": signal.SIGKILL},
}
_NO_SPACE = re.compile(r"No space left|free some space")
# Every attempt of a worker to start, or of a chunk to be collected, was struck.
_GAVE_UP = re.compile(r"^tfrl: (workers: |\d+ of \d+ chunks failed)", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
_EVENTS = re.compile(r"events\.out\.tfevents.*")
_MAX_FAULTS_OF_THE_HEAD = 3


@dataclasses.dataclass(frozen=True)
class Quiet:
    """A scenario's run in which nothing was broken.

    Attributes:
      end: what it left, as digests by name.
      files: its files.
      seconds: how long it took.
    """

    end: Mapping[str, Any]
    files: frozenset[str]
    seconds: float


@dataclasses.dataclass
class Record:
    """What came of one trial.

    Attributes:
      number: its number.
      scenario: the scenario's name.
      struck: kind of fault -> how often it hit.
      starts: how often the command was started.
      gave_up: how often it ended with an error because every attempt at something was struck.
      failures: what was wrong at the end, or on the way; nothing must be.
      left: what was left behind; nothing must be.
      lost: steps or files of the quiet run that are missing.
      gone_s: the longest time after the command's end until all its processes had ended.
      seconds: how long the trial took.
    """

    number: int
    scenario: str
    struck: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    starts: int = 0
    gave_up: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)
    left: list[str] = dataclasses.field(default_factory=list)
    lost: int = 0
    gone_s: float = 0.0
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Return whether nothing was lost, differs, or is left."""
        return not (self.failures or self.left or self.lost)

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return {**dataclasses.asdict(self), "struck": dict(self.struck)}


class Run:
    """The commands of one trial, in one place, with one mark.

    Args:
      scenario: what to run.
      place: where.
      record: gets what comes of it.
      clock: the clock of its processes; None for the machine's.
    """

    def __init__(
        self, scenario: Scenario, place: Place, record: Record, clock: striking.Clock | None = None
    ) -> None:
        self.scenario, self.place, self.record, self.clock = scenario, place, record, clock
        self.mark = place.root.name
        self.log = place.root / "log"
        self.was_damaged = False
        for path in (place.work, place.temporary, place.cache, place.home):
            path.mkdir(parents=True, exist_ok=True)
        scenario.begin(place)

    def start(self) -> subprocess.Popen:
        """Start the command; after the first time, it goes on."""
        words = self.scenario.command(self.place)
        if self.record.starts:
            at = words.index("--") if "--" in words else len(words)
            words[at:at] = self.scenario.resume
        self.record.starts += 1
        root = str(pathlib.Path(__file__).parents[3])
        environment = {
            **os.environ,
            **(self.clock.environment if self.clock else {}),
            processes.MARK: self.mark,
            "PYTHONPATH": root,
            "TMPDIR": str(self.place.temporary),
            "XDG_CACHE_HOME": str(self.place.cache),
            "HOME": str(self.place.home),
            "OMP_NUM_THREADS": "1",
        }
        # On the machine's disk, so that a full one does not silence what it says.
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                words, env=environment, stdout=log, stderr=log, cwd=root, start_new_session=True
            )

    def said(self) -> str:
        """Return what the command has said since `forget`."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def forget(self) -> None:
        """Move what the command has said out of the way."""
        with open(self.log.with_suffix(".all"), "a", encoding="utf-8") as kept:
            kept.write(self.said())
        self.log.unlink(missing_ok=True)

    def clean_up(self) -> None:
        """Note what the ended command left behind, and remove it."""
        left, gone_s = processes.wait_until_gone(self.mark, GRACE_S)
        self.record.gone_s = max(self.record.gone_s, gone_s)
        self.record.left += [f"process: {one.command[:120]}" for one in left]
        processes.end(self.mark)
        for path in self.place.temporary.iterdir():
            kind = next(name for name in _KINDS if getattr(path, name)())
            self.record.left.append(f"{kind[3:]} in TMPDIR: {path.name}")
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)


_KINDS = ("is_symlink", "is_dir", "is_fifo", "is_socket", "is_file")


def files_of(place: Place) -> frozenset[str]:
    """Return the names of the files in a run's place, without what differs in each run."""
    found = [path for path in place.work.rglob("*") if path.is_file()]
    names = {_EVENTS.sub("events", str(path.relative_to(place.root))) for path in found}
    return frozenset(name for name in names if not name.endswith("events"))


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
        if status == 0 and not run.place.root.joinpath("filler").exists():
            return
        expected = bool(fault)
        if status == 1 and _GAVE_UP.search(said):
            run.record.gave_up += 1
            expected = True
        if run.was_damaged and status == 1 and "remove the run's directory" in said:
            shutil.rmtree(run.place.work / "run", ignore_errors=True)
            expected = True
        is_signal = fault in ("interrupt", "terminate")
        if (not expected or _TRACEBACK in said.rpartition("\ntfrl: ")[2]) and not is_signal:
            run.record.failures.append(
                f"after {fault or 'workers only'}: status {status}, {said[-600:]}"
            )
            return
    run.record.failures.append("the command did not come to its end")


class Attempt:
    """One start of the command, and the faults that strike it.

    Args:
      run: the trial's commands.
      quiet: how it ends when nothing is broken.
      fault: kind of the fault that strikes the command itself; "" for none.
      random: decides when, and what else.
    """

    def __init__(self, run: Run, quiet: Quiet, fault: str, random: np.random.Generator) -> None:
        self._run, self._fault, self._random = run, fault, random
        self._place, self._struck = run.place, run.record.struck
        self._limit_s = 120 + 20 * quiet.seconds
        self._head_at_s = float(random.uniform(0, quiet.seconds))
        self._open: list[tuple[str, striking.CheckFn, processes.Target]] = []
        self._is_full = False

    def run(self) -> int:
        """Run the command until it ends; return its exit status."""
        head, began_s = self._run.start(), time.monotonic()
        next_s = began_s + float(self._random.uniform(0, 0.5))
        is_due = bool(self._fault)
        try:
            while head.poll() is None:
                now_s = time.monotonic()
                if now_s - began_s > self._limit_s:
                    self._run.record.failures.append(f"it hung for {self._limit_s:.0f} s")
                    break
                if is_due and now_s - began_s > self._head_at_s:
                    is_due = False
                    self._strike_head(head)
                if now_s > next_s and self._strike_someone():
                    next_s = now_s + float(self._random.exponential(self._run.scenario.gap_s))
                self._look_at_open()
                time.sleep(_POLL_S)
        finally:
            self._finish(head)
        return head.wait()

    def _strike_head(self, head: subprocess.Popen) -> None:
        kind = self._fault
        if kind in _SIGNALS:
            if head.poll() is None:
                self._signal_head(head, _SIGNALS[kind])
        elif kind == "pause":
            target = processes.Target(head.pid, self._run.mark)
            check = striking.strike_worker("stop_worker", target, self._random)
            self._open.append((kind, check, target))
        elif kind == "disk_full":
            self._is_full = True
        else:
            assert self._run.clock is not None
            self._run.clock.jump(int(self._random.choice(striking.JUMPS_S)))

    def _signal_head(self, head: subprocess.Popen, number: signal.Signals) -> None:
        """Signal the command; a build as a whole, as a terminal does."""
        if self._run.scenario.signals_group:
            os.killpg(head.pid, number)
        else:
            head.send_signal(number)
        if number == signal.SIGKILL:
            head.wait()
        if self._fault in ("truncate_file", "flip_bit"):
            processes.wait_until_gone(self._run.mark, GRACE_S)
            if not striking.damage(self._fault, self._place, self._random):
                return
            self._run.was_damaged = True
        self._struck[self._fault] += 1

    def _strike_someone(self) -> bool:
        """Strike one of the processes that the command started; return whether there was one."""
        targets = self._run.scenario.targets
        target, role = striking.pick(self._run.mark, list(targets), self._random)
        if target is None:
            return False
        kind = str(self._random.choice(targets[role]))
        try:
            check = striking.strike_worker(kind, target, self._random)
        except (ProcessLookupError, PermissionError):
            target.close()
            return True
        self._open.append((f"{kind} ({role})", check, target))
        return True

    def _look_at_open(self) -> None:
        if self._is_full:
            striking.Disk(self._place.root).fill()
        still = []
        for kind, check, target in self._open:
            has_hit = check()
            if has_hit is None:
                still.append((kind, check, target))
                continue
            self._struck[kind] += has_hit
            target.close()
        self._open = still

    def _finish(self, head: subprocess.Popen) -> None:
        """End what is still open, and count what is known to have hit."""
        if head.poll() is None:
            head.kill()
        for kind, _, target in self._open:
            # Stops and pulses have hit at once; whether memory was wanted is not known.
            self._struck[kind] += not kind.startswith("out_of_memory") or target.has_ended(0.5)
            with contextlib.suppress(ProcessLookupError):
                target.send(signal.SIGCONT)
            target.close()
        if self._fault == "disk_full" and self._is_full:
            striking.Disk(self._place.root).free()
            self._struck["disk_full"] += bool(_NO_SPACE.search(self._run.said()))
        if self._fault == "clock_jump" and self._run.clock is not None:
            self._struck["clock_jump"] += self._run.clock.num_readings() > 0


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
