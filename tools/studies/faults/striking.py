"""The faults: how each is brought about, and how it is known that it was.

A strike counts only if it hit: the signal reached a process that was alive, the process whose
memory was taken ended or its run said so, the disk was full and a write failed, the file was there,
the clock was read after it had jumped.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import mmap
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator

import numpy as np

from tools.studies.faults.processes import Target, find
from tools.studies.faults.scenarios import Place

CheckFn = Callable[[], bool | None]
"""Whether a strike hit; None as long as that is open. It also goes on with what takes time."""

JUMPS_S = (-3600, 3600, -86400 * 400, 86400 * 400)
_MAX_STOP_S = 6.0
_MAX_HANG_S = 60.0
_DISK_BYTES = 256 << 20
_KILLS = {
    **{"kill_worker": signal.SIGKILL, "segfault_worker": signal.SIGSEGV},
    "vanish_node": signal.SIGKILL,
}


def strike_worker(kind: str, target: Target, random: np.random.Generator) -> CheckFn:
    """Strike a process that the command started.

    Args:
      kind: "kill_worker", "segfault_worker", "vanish_node", "hang_worker", "stop_worker",
        "slow_pipe" or "out_of_memory".
      target: the process; the returned function lets go of it.
      random: draws how long what takes time takes.

    Raises:
      ProcessLookupError: it had ended.
    """
    if kind in _KILLS:
        target.send(_KILLS[kind])
        return lambda: target.has_ended() or None
    if kind == "out_of_memory":
        limits = resource.prlimit(target.pid, resource.RLIMIT_AS)
        resource.prlimit(target.pid, resource.RLIMIT_AS, (1 << 20, limits[1]))
        relieve = functools.partial(resource.prlimit, target.pid, resource.RLIMIT_AS, limits)
        return _until_ended(target, _MAX_STOP_S, relieve)
    if kind == "hang_worker":
        target.send(signal.SIGSTOP)
        return _until_ended(target, _MAX_HANG_S, lambda: target.send(signal.SIGCONT))
    if kind == "slow_pipe":
        pauses_s = list(random.uniform(0.01, 0.1, 20))
    else:
        pauses_s = [random.uniform(0.5, _MAX_STOP_S)]
    return _pulses(target, pauses_s)


def _until_ended(target: Target, limit_s: float, relieve: Callable[[], object]) -> CheckFn:
    """Have hit if a process ends within a time; else it is relieved of what it suffers."""
    until_s = time.monotonic() + limit_s

    def check() -> bool | None:
        if target.has_ended():
            return True
        if time.monotonic() < until_s:
            return None
        with contextlib.suppress(ProcessLookupError):
            relieve()
        return False

    return check


def _pulses(target: Target, pauses_s: list[float]) -> CheckFn:
    """Stop a process for each of the pauses, with moments between them in which it goes on."""
    target.send(signal.SIGSTOP)
    is_stopped, next_s = True, time.monotonic() + pauses_s.pop()

    def check() -> bool | None:
        nonlocal is_stopped, next_s
        if time.monotonic() < next_s:
            return None
        try:
            target.send(signal.SIGCONT if is_stopped else signal.SIGSTOP)
        except ProcessLookupError:
            return True
        if is_stopped and not pauses_s:
            return True
        next_s = time.monotonic() + (0.02 if is_stopped else pauses_s.pop())
        is_stopped = not is_stopped
        return None

    return check


class Disk:
    """A file system of its own for a run, which can be full.

    Args:
      root: directory to mount it at.
    """

    def __init__(self, root: pathlib.Path) -> None:
        self._root = root
        self._filler = root / "filler"

    @staticmethod
    def is_permitted(directory: pathlib.Path) -> bool:
        """Return whether this process may mount one."""
        with contextlib.suppress(OSError, subprocess.CalledProcessError), mounted(directory):
            return True
        return False

    def fill(self) -> None:
        """Take all space that is left."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 4096):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        """Give it back."""
        self._filler.unlink(missing_ok=True)


@contextlib.contextmanager
def mounted(directory: pathlib.Path) -> Iterator[None]:
    """Mount a file system in memory at a directory.

    Raises:
      OSError, CalledProcessError: that is not permitted.
    """
    directory.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tfrl-campaign", str(directory)]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True, capture_output=True)


class Clock:
    """The wall clock of a run's processes; see clock.c.

    Args:
      path: the file that they share.
      library: the compiled library.
    """

    def __init__(self, path: pathlib.Path, library: pathlib.Path) -> None:
        path.write_bytes(bytes(16))
        self.environment = {"LD_PRELOAD": str(library), "TFRL_CLOCK": str(path)}
        self._path = path

    def jump(self, seconds: int) -> None:
        """Have the clock jump."""
        with self._path.open("r+b") as file, mmap.mmap(file.fileno(), 16) as shared:
            shared[:16] = struct.pack("qq", seconds, 0)

    def num_readings(self) -> int:
        """Return how often it was read since it jumped."""
        return struct.unpack("qq", self._path.read_bytes())[1]


def make_clock_library(directory: pathlib.Path) -> pathlib.Path | None:
    """Compile clock.c; return None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    directory.mkdir(parents=True, exist_ok=True)
    source, library = pathlib.Path(__file__).with_name("clock.c"), directory / "clock.so"
    command = [compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


def damage(kind: str, place: Place, random: np.random.Generator) -> str:
    """Cut off, or change a bit of, one file that a killed run wrote; return which, "" for none."""
    files = [
        path
        for base in (place.work, place.cache)
        for path in sorted(base.rglob("*"))
        if path.is_file() and path.stat().st_size > 0 and _is_damaged_by_us(path)
    ]
    if not files:
        return ""
    path = files[int(random.integers(len(files)))]
    size = path.stat().st_size
    at = int(random.integers(size))
    if kind == "truncate_file":
        os.truncate(path, at)
    else:
        data = bytearray(path.read_bytes())
        data[at] ^= 1 << int(random.integers(8))
        path.write_bytes(data)
    return str(path.relative_to(place.root))


def _is_damaged_by_us(path: pathlib.Path) -> bool:
    """Return whether a file is tfrl's to read again; sources and curves are not."""
    return path.suffix not in (".cc", ".o") and path.name != "Makefile" and (
        "tensorboard" not in path.parts
    )  # fmt: skip


def pick(
    mark: str, roles: list[str], random: np.random.Generator
) -> tuple[Target, str] | tuple[None, str]:
    """Return one of a run's processes with one of the roles, and its role; None without one."""
    candidates = sorted(process for process in find(mark) if process.role in roles)
    if not candidates:
        return None, ""
    chosen = candidates[int(random.integers(len(candidates)))]
    try:
        return Target(chosen.pid, mark), chosen.role
    except ProcessLookupError:
        return None, ""
