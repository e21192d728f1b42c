"""Caches of small files, one for each entry, which several processes and machines may share.

A file appears complete or not at all. It begins with a digest of its key and its content; one that
is damaged counts as absent and is removed. The files are spread over directories, the buckets.
Whoever puts an entry keeps its bucket small, by removing what was not used for the longest time. So
nobody needs to know the size of the whole cache, and no locks are needed: a file that has vanished
is an entry that is absent.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import pathlib
import tempfile
import time
from collections.abc import Iterator

from environments.caches.digests import SIZE, digest

# What a file takes on most disks is a multiple of this.
_BLOCK_BYTES = 4096
_BUCKET_BYTES = 1_000_000
# When an entry was used is noted to this precision only, because noting it is a write.
_PRECISION_S = 600.0

_log = logging.getLogger(__name__)
_complained: set[pathlib.Path] = set()


@dataclasses.dataclass(frozen=True)
class File:
    """A file of a cache.

    Attributes:
      path: the file.
      size_bytes: the space that it takes, in whole blocks.
      used_s: when it was used last, in s since 1970.
    """

    path: pathlib.Path
    size_bytes: int
    used_s: float


class FileCache:
    """Bytes by key, in a directory.

    Args:
      directory: the directory; made when it is needed.
      bound_bytes: the space that all entries may take, approximately. The entry that was put last
        stays, even if it is larger.
      version: raised whenever contents mean something else. Other versions are not read, and are
        removed in time like everything that is not used.
    """

    def __init__(self, directory: pathlib.Path, bound_bytes: int, version: int = 1) -> None:
        self._directory = directory
        self._version = version
        self._num_buckets = max(1, bound_bytes // _BUCKET_BYTES)
        self._bucket_bytes = bound_bytes // self._num_buckets

    def get(self, key: str) -> bytes | None:
        """Return what is kept under a key; None if there is nothing."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                stored = file.read()
                modified_s = os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        content = stored[SIZE:]
        if stored[:SIZE] != digest(key, content):
            _remove(path)
            return None
        if abs(time.time() - modified_s) > _PRECISION_S:
            with contextlib.suppress(OSError):  # Reading may be all that is allowed.
                os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> bytes:
        """Keep a content, and return the one that counts: another process may have been first.

        If nothing can be kept there, as on a full disk, the first time is told and all others are
        silent.
        """
        path = self._path(key)
        try:
            for _ in range(2):
                if self._add(path, digest(key, content) + content):
                    self._make_room(path)
                    break
                # If the entry that was there is damaged, reading it makes room for this one.
                found = self.get(key)
                if found is not None:
                    return found
        except FileNotFoundError:
            pass  # Another process has cleared the cache meanwhile.
        except OSError as error:
            complain(self._directory, error)
        return content

    def discard(self, key: str) -> None:
        """Remove what is kept under a key, if anything."""
        _remove(self._path(key))

    def _path(self, key: str) -> pathlib.Path:
        name = digest(key)
        bucket = int.from_bytes(name[:4], "big") % self._num_buckets
        return self._directory / f"{bucket:03d}" / f"{self._version}-{name.hex()}"

    def _add(self, path: pathlib.Path, stored: bytes) -> bool:
        """Write a new file; return False if it exists."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".", dir=path.parent)
        fresh = pathlib.Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(stored)
            try:
                path.hardlink_to(fresh)
            except FileExistsError:
                return False
            except OSError:
                fresh.replace(path)  # Not all file systems have hard links.
        finally:
            _remove(fresh)
        return True

    def _make_room(self, newest: pathlib.Path) -> None:
        found = sorted(files_in(newest.parent), key=lambda one: one.used_s)
        excess_bytes = sum(one.size_bytes for one in found) - self._bucket_bytes
        for one in found:
            if excess_bytes <= 0:
                break
            if one.path != newest:
                _remove(one.path)
                excess_bytes -= one.size_bytes


def files_in(directory: pathlib.Path) -> Iterator[File]:
    """Yield the files below a directory, as far as they do not vanish meanwhile.

    A file in the place of the directory is yielded itself.
    """
    try:
        entries = list(os.scandir(directory))
    except NotADirectoryError:
        entries = []
        with contextlib.suppress(OSError):  # What is no directory may be further up.
            yield _file(os.fspath(directory), directory.lstat())
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from files_in(pathlib.Path(entry.path))
        else:
            with contextlib.suppress(OSError):
                yield _file(entry.path, entry.stat(follow_symlinks=False))


def _file(path: str, stat: os.stat_result) -> File:
    blocks = -(-stat.st_size // _BLOCK_BYTES)
    return File(pathlib.Path(path), blocks * _BLOCK_BYTES, stat.st_mtime)


def clear(directory: pathlib.Path) -> None:
    """Remove everything in a directory that can be removed, while others may use it."""
    for one in files_in(directory):
        _remove(one.path)
    for place, _, _ in os.walk(directory, topdown=False):
        if place != os.fspath(directory):
            with contextlib.suppress(OSError):  # Somebody has put something there meanwhile.
                pathlib.Path(place).rmdir()


def complain(place: pathlib.Path, error: Exception) -> None:
    """Say that a cache cannot be used, once for each place."""
    if place not in _complained:
        _complained.add(place)
        _log.warning(
            "cache: expected to read and write %s, found: %s; going on without it", place, error
        )


def _remove(path: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
