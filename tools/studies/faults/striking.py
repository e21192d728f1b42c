"""The processes of a run, and the faults that strike them and their files.

Every process of a run has inherited an environment variable with a value of its own, the path of
the run's directory, so it is found whatever its parent, its session and its name have become.

A strike counts only if it hit: the signal reached a process that was alive, the process whose
memory was taken ended or its run said so, the disk was full and a write failed, the file was there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Collection, Generator, Iterator
from typing import NamedTuple

import numpy as np
import psutil

MARK = "TFRL_FAULT_CAMPAIGN"
_PR_SET_CHILD_SUBREAPER = 36
# What is in the command lines of processes that a fault may strike.
_ROLES = {
    "worker": ("drivers.pipes.worker_main",),
    "ray worker": ("ray::Worker", "ray::IDLE"),
    "ray node": ("/raylet/raylet", "/gcs/gcs_server"),
    "compiler": ("embedded_worker", "clang", "ziglang"),
}


class Marked(NamedTuple):
    """A process of a run that was alive, and its command line."""

    process: psutil.Process
    command: str

    @property
    def role(self) -> str:
        """What it does in the run; "" for what no fault strikes."""
        if "guardian_process" in self.command or "cli.main" in self.command:
            return ""
        roles = (role for role, parts in _ROLES.items() if any(p in self.command for p in parts))
        return next(roles, "")


def has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, though it may wait to be buried."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return True


def find(mark: str) -> list[Marked]:
    """Return the live processes with a mark."""
    marked = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())
            is_ours = process.environ().get(MARK) == mark
            # Ray's agents write over their environment.
            if not is_ours and command.startswith("ray::"):
                is_ours = any(file.path.startswith(f"{mark}/") for file in process.open_files())
            if is_ours and not has_ended(process):
                marked.append(Marked(process, command))
    return marked


def pick(mark: str, roles: Collection[str], random: np.random.Generator) -> Marked | None:
    """Return one of a run's processes with one of the roles."""
    candidates = [marked for marked in find(mark) if marked.role in roles]
    return candidates[int(random.integers(len(candidates)))] if candidates else None


def wait_until_gone(mark: str, timeout_s: float) -> tuple[list[Marked], float]:
    """Wait until no process has a mark; return those left after a time, and the seconds waited."""
    began_s = time.monotonic()
    while (left := find(mark)) and time.monotonic() - began_s < timeout_s:
        time.sleep(0.05)
    return left, time.monotonic() - began_s


def end(mark: str) -> None:
    """Kill all processes with a mark, and bury the adopted children that have ended."""
    while marked := find(mark):
        for process, _ in marked:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.05)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can still be found and ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


Strike = Generator[None, None, bool]
"""Goes on with a strike as long as that takes, and returns whether it hit."""

_MAX_STOP_S = 6.0
_MAX_HANG_S = 60.0
_DISK_BYTES = 256 << 20
_KILLS = {
    **{"kill_worker": signal.SIGKILL, "segfault_worker": signal.SIGSEGV},
    "vanish_node": signal.SIGKILL,
}


def strike(kind: str, process: psutil.Process, random: np.random.Generator) -> Strike:
    """Strike a process that the command started.

    Args:
      kind: "kill_worker", "segfault_worker", "vanish_node", "hang_worker", "stop_worker",
        "slow_pipe" or "out_of_memory".
      process: the process.
      random: draws how long what takes time takes.

    Raises:
      psutil.NoSuchProcess: it had ended.
    """
    if kind in _KILLS:
        process.send_signal(_KILLS[kind])
        while not has_ended(process):
            yield
        return True
    if kind in ("out_of_memory", "hang_worker"):
        limits = process.rlimit(psutil.RLIMIT_AS)
        if kind == "hang_worker":
            process.suspend()
        else:
            process.rlimit(psutil.RLIMIT_AS, (1 << 20, limits[1]))
        until_s = time.monotonic() + (_MAX_HANG_S if kind == "hang_worker" else _MAX_STOP_S)
        while not has_ended(process):
            if time.monotonic() >= until_s:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.rlimit(psutil.RLIMIT_AS, limits)
                    process.resume()
                return False
            yield
        return True
    low_s, high_s, count = (0.01, 0.1, 20) if kind == "slow_pipe" else (0.5, _MAX_STOP_S, 1)
    process.suspend()
    with contextlib.suppress(psutil.NoSuchProcess):
        for pause_s in random.uniform(low_s, high_s, count):
            for signal_fn, wait_s in ((process.suspend, pause_s), (process.resume, 0.02)):
                signal_fn()
                until_s = time.monotonic() + wait_s
                while time.monotonic() < until_s:
                    yield
    return True


def may_mount(directory: pathlib.Path) -> bool:
    """Return whether this process may mount a file system."""
    with contextlib.suppress(OSError, subprocess.CalledProcessError), mounted(directory):
        return True
    return False


@contextlib.contextmanager
def mounted(directory: pathlib.Path) -> Iterator[None]:
    """Mount a file system of its own, in memory, at a directory; it can be full.

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


def fill(filler: pathlib.Path) -> None:
    """Let a file take all space that is left on its disk."""
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def damage(kind: str, root: pathlib.Path, random: np.random.Generator) -> str:
    """Cut off, or change a bit of, one file that a killed run wrote; return which, "" for none."""
    files = [
        path
        for name in ("w", "c")
        for path in sorted((root / name).rglob("*"))
        # Sources and curves are not tfrl's to read again.
        if path.is_file() and path.stat().st_size and path.suffix not in (".cc", ".o")
        if path.name != "Makefile" and "tensorboard" not in path.parts
    ]
    if not files:
        return ""
    path = files[int(random.integers(len(files)))]
    at = int(random.integers(path.stat().st_size))
    if kind == "truncate_file":
        os.truncate(path, at)
    else:
        content = bytearray(path.read_bytes())
        content[at] ^= 1 << int(random.integers(8))
        path.write_bytes(content)
    return str(path.relative_to(root))
