"""The caches that there are, how large they are, and how they are cleared."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import shutil
from typing import Any

from environments.caches import cache, directories
from environments.files import is_directory
from environments.machine import cache_directory


@dataclasses.dataclass(frozen=True)
class UserCache:
    """A cache in the user's cache directory.

    Attributes:
      name: name for people, and the beginning of its file's.
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

    def usage(self) -> dict[str, Any]:
        """Return what it takes, with other versions' files, as `tfrl cache info` shows it."""
        return {
            "name": self.name,
            "path": str(self.path),
            "size_bytes": sum(map(directories.size_bytes, self.places())),
            "entries": self.num_entries(),
            "bound_bytes": self.bound_bytes,
        }

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

    def entry(self, name: str) -> pathlib.Path:
        """Return the directory of an entry; see `directories.entry`."""
        return directories.entry(self.path, name, self.bound_bytes)

    def num_entries(self) -> int:
        """Return the number of its entries."""
        return len(directories.entries_in(self.path))

    def places(self) -> list[pathlib.Path]:
        """Return its directory."""
        return [self.path]

    def clear(self) -> bool:
        """Clear it; return False if a process uses it."""
        return directories.clear(self.path)


COMPILES = UserCache("compiles", "compiles of modules", 2_000_000_000, version=4)
COSTS = UserCache("costs", "measured times of operators", 200_000_000, version=5)
VERIFIED_RULES = UserCache("verified_rules", "rules verified here", 5_000_000, version=1)
MINIMA = UserCache("minima", "minima of functions", 50_000_000, version=1)
PLUGINS = PluginCache("plugins", "plugins for clang", 1_000_000_000, version=1)
CACHES = {entry.name: entry for entry in (COMPILES, COSTS, VERIFIED_RULES, MINIMA, PLUGINS)}
