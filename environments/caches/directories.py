"""A cache of directories that programs use in place, such as libraries that a clang has loaded.

A process that has asked for an entry holds the cache until it ends: nothing is removed from under
its programs. So room is made, and the cache is cleared, only while nobody holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import time
from collections.abc import Iterator
from typing import IO

from environments.files import is_directory

_LOCK = ".lock"
# What a file takes on most disks is a multiple of this.
_BLOCK_BYTES = 4096
_SHORT_WAIT_S = 5.0
_POLL_S = 0.05
# The locks of this process; the operating system releases them when it ends.
_held: dict[pathlib.Path, IO] = {}


def entry(directory: pathlib.Path, name: str, bound_bytes: int) -> pathlib.Path:
    """Return the directory of an entry, made if it is missing; hold the cache until the end.

    Args:
      directory: the cache; made when it is needed.
      name: the entry.
      bound_bytes: the space that all entries may take, approximately: it is not looked at while
        other processes hold the cache.

    Raises:
      OSError: it cannot be made.
    """
    if directory not in _held:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            _hold(directory, bound_bytes)
    path = directory / name
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # Reading may be all that is allowed.
        os.utime(path)
    return path


def clear(directory: pathlib.Path) -> bool:
    """Remove all entries; return False if a process holds the cache, and nothing is removed."""
    with _alone(directory) as is_alone:
        if is_alone:
            for path in entries_in(directory):
                shutil.rmtree(path, ignore_errors=True)
    return is_alone


def _hold(directory: pathlib.Path, bound_bytes: int) -> None:
    with _alone(directory) as is_alone:
        if is_alone:
            _make_room(directory, bound_bytes)
    lock = _open_lock(directory)
    acquire(lock, fcntl.LOCK_SH, _SHORT_WAIT_S)
    _held[directory] = lock


def _make_room(directory: pathlib.Path, bound_bytes: int) -> None:
    entries = sorted(entries_in(directory), key=lambda path: path.stat().st_mtime)
    sizes = [size_bytes(path) for path in entries]
    excess_bytes = sum(sizes) - bound_bytes
    for path, freed_bytes in zip(entries, sizes, strict=True):
        if excess_bytes <= 0:
            break
        shutil.rmtree(path, ignore_errors=True)
        excess_bytes -= freed_bytes


def entries_in(directory: pathlib.Path) -> list[pathlib.Path]:
    """Return the entries of a cache."""
    try:
        return [path for path in directory.iterdir() if path.is_dir()]
    except OSError:
        return []


def size_bytes(path: pathlib.Path) -> int:
    """Return the space that a file, or all below a directory, takes, in whole blocks.

    What vanishes meanwhile does not count.
    """
    places = [path]
    if is_directory(path) and not path.is_symlink():
        places = [pathlib.Path(at, name) for at, _, names in os.walk(path) for name in names]
    total = 0
    for place in places:
        with contextlib.suppress(OSError):
            total += -(-place.lstat().st_size // _BLOCK_BYTES) * _BLOCK_BYTES
    return total


def acquire(file: IO, kind: int, wait_s: float) -> bool:
    """Lock a file, and return whether it is locked now.

    Args:
      file: an open file.
      kind: LOCK_SH or LOCK_EX, of `fcntl`.
      wait_s: how long to wait. A process that has the lock may have been stopped for good.
    """
    end_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= end_s:
                return False
            time.sleep(_POLL_S)
        else:
            return True


@contextlib.contextmanager
def _alone(directory: pathlib.Path) -> Iterator[bool]:
    """Yield whether no process holds the cache, and keep others from it meanwhile."""
    if not is_directory(directory):
        yield True
        return
    try:
        lock = _open_lock(directory)
    except OSError:
        yield False
        return
    with lock:
        yield acquire(lock, fcntl.LOCK_EX, 0.0)


def _open_lock(directory: pathlib.Path) -> IO:
    # A pipe in its place would block.
    flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(directory / _LOCK, flags, 0o600), "rb", buffering=0)
