"""The caches that there are, how large they are, and how they are cleared."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import pathlib

from environments.caches import database
from environments.caches.directories import DirectoryCache, entries_in
from environments.caches.files import FileCache, clear, files_in
from environments.files import is_directory
from environments.machine import cache_directory


class Form(enum.Enum):
    """How a cache keeps its entries."""

    FILES = enum.auto()
    DIRECTORIES = enum.auto()
    DATABASE = enum.auto()


@dataclasses.dataclass(frozen=True)
class Cache:
    """A place in the user's cache directory.

    Attributes:
      name: its name.
      holds: what it holds, for people.
      form: how it keeps its entries.
      bound_bytes: the space that it may take, approximately.
      version: raised whenever what is kept means something else.
    """

    name: str
    holds: str
    form: Form
    bound_bytes: int
    version: int

    @property
    def path(self) -> pathlib.Path:
        """Its file or directory; see `machine.cache_directory`."""
        is_file = self.form is Form.DATABASE
        return cache_directory() / (f"{self.name}-{self.version}.db" if is_file else self.name)

    def files(self) -> FileCache:
        """Open a cache of files."""
        return FileCache(self.path, self.bound_bytes, self.version)

    def directories(self) -> DirectoryCache:
        """Open a cache of directories."""
        return DirectoryCache(self.path, self.bound_bytes)


COMPILES = Cache("compiles", "compiles of modules", Form.DATABASE, 2_000_000_000, version=2)
COSTS = Cache("costs", "measured times of operators", Form.FILES, 200_000_000, version=5)
VERIFIED_RULES = Cache("verified_rules", "rules verified here", Form.FILES, 5_000_000, version=1)
MINIMA = Cache("minima", "minima of functions", Form.FILES, 50_000_000, version=1)
PLUGINS = Cache("plugins", "plugins for clang", Form.DIRECTORIES, 1_000_000_000, version=1)
CACHES = {one.name: one for one in (COMPILES, COSTS, VERIFIED_RULES, MINIMA, PLUGINS)}

_COUNTED = ("compiles", "records")
"""The tables of the database whose rows are entries."""


@dataclasses.dataclass(frozen=True)
class Usage:
    """What a cache takes.

    Attributes:
      name: name of the cache.
      path: its file or directory.
      size_bytes: the space that it takes, with what other versions have left.
      entries: the number of its entries.
      bound_bytes: the space that it may take, approximately.
    """

    name: str
    path: str
    size_bytes: int
    entries: int
    bound_bytes: int


def usage_of(cache: Cache) -> Usage:
    """Return what a cache takes."""
    found = [one for path in _paths(cache) for one in files_in(path)]
    if cache.form is Form.DATABASE:
        entries = database.rows_in(cache.path, _COUNTED)
    elif cache.form is Form.DIRECTORIES:
        entries = entries_in(cache.path)
    else:
        entries = sum(not one.path.name.startswith(".") for one in found)
    size_bytes = sum(one.size_bytes for one in found)
    return Usage(cache.name, str(cache.path), size_bytes, entries, cache.bound_bytes)


def clear_cache(cache: Cache) -> bool:
    """Clear a cache while others may use it; return False if one of them prevents that."""
    if cache.form is Form.FILES:
        clear(cache.path)
        return True
    if cache.form is Form.DIRECTORIES:
        return cache.directories().clear()
    for path in _paths(cache):
        if not path.name.startswith(cache.path.name) or path.suffix == database.DAMAGED:
            with contextlib.suppress(OSError):
                path.unlink()
    return database.clear(cache.path)


def _paths(cache: Cache) -> list[pathlib.Path]:
    """Return the cache's directory, or the files that belong to its database."""
    if cache.form is Form.DATABASE:
        directory = cache_directory()
        return sorted(directory.glob(f"{cache.name}*")) if is_directory(directory) else []
    return [cache.path]
