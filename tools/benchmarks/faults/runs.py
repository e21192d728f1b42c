"""The commands of one trial, in a place of their own, and the record of what came of them."""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from tools.benchmarks.faults import processes, striking
from tools.benchmarks.faults.scenarios import Place, Scenario

# How long what a command started may live on after it.
GRACE_S = 10.0
GENERATED = "__autograph_generated_file"
"""TensorFlow writes these sources, and removes them when its process ends; not if it is killed."""
# A clang writes an object under such a name first, and leaves it if it is killed, as in any build.
_HALF_WRITTEN = ".o.tmp"
_EVENTS = re.compile(r"events\.out\.tfevents.*")


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
        self.mark = str(place.root)
        # Beside the place, so that a full disk does not silence what the command says.
        self.log = place.root.with_name(f"{place.root.name}.log")
        self.was_damaged = False
        # Ray leaves a TMPDIR whose path is longer than its sockets' may be.
        self._link = pathlib.Path(f"/tmp/fc{os.getpid()}")
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
            "TMPDIR": str(self._link),
            "XDG_CACHE_HOME": str(self.place.cache),
            "HOME": str(self.place.home),
            "OMP_NUM_THREADS": "1",
        }
        self._link.unlink(missing_ok=True)
        self._link.symlink_to(self.place.temporary)
        with self.log.open("ab") as log:
            return subprocess.Popen(
                words, env=environment, stdout=log, stderr=log, cwd=root, start_new_session=True
            )

    def said(self) -> str:
        """Return what the command has said since `forget`."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def forget(self) -> None:
        """Move what the command has said out of the way."""
        with self.log.with_suffix(".all").open("a", encoding="utf-8") as kept:
            kept.write(self.said())
        self.log.unlink(missing_ok=True)

    def clean_up(self) -> None:
        """Note what the ended command left behind, and remove it."""
        left, gone_s = processes.wait_until_gone(self.mark, GRACE_S)
        self.record.gone_s = max(self.record.gone_s, gone_s)
        self.record.left += [f"process: {one.command[:120]}" for one in left]
        processes.end(self.mark)
        self._link.unlink(missing_ok=True)
        for path in self.place.temporary.iterdir():
            kind = next(name for name in _KINDS if getattr(path, name)())
            if not path.name.startswith(GENERATED):
                self.record.left.append(f"{kind[3:]} in TMPDIR: {path.name}")
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)


_KINDS = ("is_symlink", "is_dir", "is_fifo", "is_socket", "is_file")


def files_of(place: Place) -> frozenset[str]:
    """Return the names of the files in a run's place, without what differs in each run."""
    found = [path for path in place.work.rglob("*") if path.is_file()]
    names = {_EVENTS.sub("events", str(path.relative_to(place.root))) for path in found}
    return frozenset(name for name in names if not name.endswith(("events", _HALF_WRITTEN)))
