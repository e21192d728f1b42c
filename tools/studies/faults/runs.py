"""The commands of one trial, the faults that strike them, and the record of what came of both."""

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
from collections.abc import Mapping
from typing import Any

import numpy as np
import psutil

from tools.studies.faults import striking
from tools.studies.faults.scenarios import Place, Scenario

# How long what a command started may live on after it.
GRACE_S = 10.0
GENERATED = "__autograph_generated_file"
"""TensorFlow writes these sources, and removes them when its process ends; not if it is killed."""
# A clang writes an object under such a name first, and leaves it if it is killed, as in any build.
_HALF_WRITTEN = ".o.tmp"
_EVENTS = re.compile(r"events\.out\.tfevents.*")
_KINDS = ("is_symlink", "is_dir", "is_fifo", "is_socket", "is_file")
_POLL_S = 0.02
_DAMAGES = ("truncate_file", "flip_bit")
_SIGNALS = {
    **{"kill": signal.SIGKILL, "interrupt": signal.SIGINT, "terminate": signal.SIGTERM},
    **dict.fromkeys(_DAMAGES, signal.SIGKILL),
}
_NO_SPACE = re.compile(r"No space left|free some space")


@dataclasses.dataclass(frozen=True)
class Quiet:
    """A scenario's run in which nothing was broken: its end (`Scenario.end`), files and time."""

    end: Mapping[str, Any]
    files: list[str]
    seconds: float


@dataclasses.dataclass
class Record:
    """What came of one trial.

    Attributes:
      struck: kind of fault -> how often it hit.
      starts: how often the command was started.
      gave_up: how often it ended with an error because every attempt at something was struck.
      failures, left: what was wrong, and what was left behind; nothing must be.
      lost: steps or files of the quiet run that are missing.
      gone_s: the longest time after the command's end until all its processes had ended.
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

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost, differs, or is left."""
        return not (self.failures or self.left or self.lost)


class Run:
    """The commands of one trial, in one place, whose path marks their processes."""

    def __init__(self, scenario: Scenario, place: Place, record: Record) -> None:
        self.scenario, self.place, self.record = scenario, place, record
        self.mark = str(place.root)
        # Beside the place, so that a full disk does not silence what the command says.
        self._log = place.root.with_name(f"{place.root.name}.log")
        self.was_damaged = False
        # Ray leaves a TMPDIR whose path is longer than its sockets' may be.
        self._link = pathlib.Path(f"/tmp/fc{os.getpid()}")
        for name in "wtch":
            (place.root / name).mkdir(parents=True, exist_ok=True)
        scenario.begin(place)

    def start(self) -> subprocess.Popen:
        """Start the command; after the first time, it goes on."""
        words = self.scenario.words(self.place)
        if self.record.starts:
            words += self.scenario.resume
        self.record.starts += 1
        checkout = str(pathlib.Path(__file__).parents[3])
        environment = {
            **{**os.environ, striking.MARK: self.mark, "TMPDIR": str(self._link)},
            **{"PYTHONPATH": checkout, "HOME": f"{self.place.root}/h", "OMP_NUM_THREADS": "1"},
            "XDG_CACHE_HOME": f"{self.place.root}/c",
        }
        self._link.unlink(missing_ok=True)
        self._link.symlink_to(self.place.root / "t")
        with self._log.open("ab") as log:
            return subprocess.Popen(
                words, env=environment, stdout=log, stderr=log, cwd=checkout, start_new_session=True
            )

    def said(self) -> str:
        """Return what the command has said since it was cleaned up after."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def clean_up(self) -> str:
        """Note what the ended command left behind, remove it, and return what it has said."""
        left, gone_s = striking.wait_until_gone(self.mark, GRACE_S)
        self.record.gone_s = max(self.record.gone_s, gone_s)
        self.record.left += [f"process: {marked.command[:120]}" for marked in left]
        striking.end(self.mark)
        self._link.unlink(missing_ok=True)
        for path in (self.place.root / "t").iterdir():
            kind = next(name for name in _KINDS if getattr(path, name)())
            if not path.name.startswith(GENERATED):
                self.record.left.append(f"{kind[3:]} in TMPDIR: {path.name}")
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)
        said = self.said()
        self._log.unlink(missing_ok=True)
        return said


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
        self._struck = run.record.struck
        # A busy machine starts workers more slowly; they are struck at work, not at starts only.
        self._gap_s = run.scenario.gaps * quiet.seconds
        self._limit_s = 120 + 20 * quiet.seconds
        self._head_at_s = float(random.uniform(0, quiet.seconds))
        self._open: list[tuple[str, striking.Strike, psutil.Process]] = []
        self._filler = run.place.root / "filler"
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
                    is_due = not self._strike_head(head)
                if now_s > next_s and self._strike(self._run.scenario.targets):
                    next_s = now_s + float(self._random.exponential(self._gap_s))
                if self._is_full:
                    striking.fill(self._filler)
                self._open = [strike for strike in self._open if self._goes_on(*strike)]
                time.sleep(_POLL_S)
        finally:
            self._finish(head)
        return head.wait()

    def _strike_head(self, head: subprocess.Popen) -> bool:
        """Strike the command, or what it cannot do without; return whether that was there."""
        kind = self._fault
        if kind == "vanish_node":
            return self._strike({"ray node": (kind,)})
        if kind == "pause":
            self._begin(kind, "stop_worker", psutil.Process(head.pid))
        elif kind == "disk_full":
            self._is_full = True
        elif head.poll() is None:
            self._signal_head(head, _SIGNALS[kind])
        return True

    def _signal_head(self, head: subprocess.Popen, number: signal.Signals) -> None:
        """Signal the command; a build as a whole, as a terminal does."""
        if self._run.scenario.signals_group:
            os.killpg(head.pid, number)
        else:
            head.send_signal(number)
        if number == signal.SIGKILL and head.wait() != -signal.SIGKILL:
            return  # It had just ended by itself.
        if self._fault in _DAMAGES:
            striking.wait_until_gone(self._run.mark, GRACE_S)
            if not striking.damage(self._fault, self._run.place.root, self._random):
                return
            self._run.was_damaged = True
        self._struck[self._fault] += 1

    def _strike(self, targets: Mapping[str, tuple[str, ...]]) -> bool:
        """Strike one of the processes that the command started; return whether there was one."""
        target = striking.pick(self._run.mark, targets, self._random)
        if target is not None:
            kind = str(self._random.choice(targets[target.role]))
            self._begin(f"{kind} ({target.role})", kind, target.process)
        return target is not None

    def _begin(self, name: str, kind: str, process: psutil.Process) -> None:
        strike = striking.strike(kind, process, self._random)
        with contextlib.suppress(psutil.Error):
            if self._goes_on(name, strike, process):
                self._open.append((name, strike, process))

    def _goes_on(self, name: str, strike: striking.Strike, process: psutil.Process) -> bool:
        """Go on with a strike; count it if that was its end and it has hit."""
        try:
            next(strike)
        except StopIteration as end:
            self._struck[name] += end.value
            return False
        return True

    def _finish(self, head: subprocess.Popen) -> None:
        """End what is still open, and count what is known to have hit."""
        if head.poll() is None:
            head.kill()
        for name, _, process in self._open:
            # Stops and pulses have hit at once; the end of others may not have come.
            is_certain = not name.startswith(("out_of_memory", "hang_worker"))
            self._struck[name] += is_certain or striking.has_ended(process)
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        if self._is_full:
            self._filler.unlink(missing_ok=True)
            self._struck["disk_full"] += bool(_NO_SPACE.search(self._run.said()))


def files_of(place: Place) -> list[str]:
    """Return the names of the files in a run's place, without what differs in each run."""
    paths = [path for path in place.work.rglob("*") if path.is_file()]
    names = {_EVENTS.sub("events", str(path.relative_to(place.root))) for path in paths}
    return sorted(name for name in names if not name.endswith(("events", _HALF_WRITTEN)))
