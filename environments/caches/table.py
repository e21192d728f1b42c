"""The caches that there are, how large they are, and how they are cleared."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import shutil

from environments.caches import cache, directories
from environments.files import is_directory
from environments.machine import cache_directory


@dataclasses.dataclass(frozen=True)
class UserCache:
    """A cache in the user's cache directory.

    Attributes:
      name: its name.
      holds: what it holds, for people.
      bound_bytes: the space that it may take, approximately.
      version: raised whenever what is kept means something else.
    """

    name: str
    holds: str
    bound_bytes: int
    version: int

    @property
    def path(self) -> pathlib.Path:
        """Its file; see `machine.cache_directory`."""
        return cache_directory() / f"{self.name}-{self.version}.db"

    def open(self) -> cache.Cache:
        """Return the cache itself."""
        return cache.Cache(self.path, self.bound_bytes, self.version)

    def num_entries(self) -> int:
        """Return the number of its entries."""
        return cache.count_entries(self.path)

    def places(self) -> list[pathlib.Path]:
        """Return all that belongs to it, also what other versions have left."""
        directory = cache_directory()
        return sorted(directory.glob(f"{self.name}*")) if is_directory(directory) else []

    def clear(self) -> bool:
        """Clear it while others may use it; return False if one of them prevents that."""
        for path in self.places():
            if path.name.startswith(self.path.name) and path.suffix != cache.DAMAGED:
                continue
            if is_directory(path) and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    path.unlink()
        return cache.clear(self.path)


class PluginCache(UserCache):
    """The cache of plugins, which programs load in place."""

    @property
    def path(self) -> pathlib.Path:
        """Its directory."""
        return cache_directory() / self.name

    def directories(self) -> directories.DirectoryCache:
        """Return the cache itself."""
        return directories.DirectoryCache(self.path, self.bound_bytes)

    def num_entries(self) -> int:
        """Return the number of its entries."""
        return len(directories.entries_in(self.path))

    def places(self) -> list[pathlib.Path]:
        """Return its directory."""
        return [self.path]

    def clear(self) -> bool:
        """Clear it; return False if a process uses it."""
        return self.directories().clear()


COMPILES = UserCache("compiles", "compiles of modules", 2_000_000_000, version=4)
COSTS = UserCache("costs", "measured times of operators", 200_000_000, version=5)
VERIFIED_RULES = UserCache("verified_rules", "rules verified here", 5_000_000, version=1)
MINIMA = UserCache("minima", "minima of functions", 50_000_000, version=1)
PLUGINS = PluginCache("plugins", "plugins for clang", 1_000_000_000, version=1)
CACHES = {entry.name: entry for entry in (COMPILES, COSTS, VERIFIED_RULES, MINIMA, PLUGINS)}


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


def usage_of(cache: UserCache) -> Usage:
    """Return what a cache takes."""
    size_bytes = sum(directories.size_bytes(path) for path in cache.places())
    return Usage(cache.name, str(cache.path), size_bytes, cache.num_entries(), cache.bound_bytes)
