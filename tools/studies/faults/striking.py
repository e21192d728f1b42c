"""The faults: how each is brought about, and how it is known that it was.

A strike counts only if it hit: the signal reached a process that was alive, the process whose
memory was taken ended or its run said so, the disk was full and a write failed, the file was there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Generator, Iterator

import numpy as np
import psutil

from tools.studies.faults.processes import has_ended

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
