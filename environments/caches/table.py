"""The caches that there are."""

from __future__ import annotations

import dataclasses
import pathlib

from environments.caches.files import FileCache
from environments.machine import cache_directory


@dataclasses.dataclass(frozen=True)
class Cache:
    """A place in the user's cache directory.

    Attributes:
      name: its name, which is that of its directory too.
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
        """Where it is; see `machine.cache_directory`."""
        return cache_directory() / self.name

    def files(self) -> FileCache:
        """Open it as a cache of small files."""
        return FileCache(self.path, self.bound_bytes, self.version)


COSTS = Cache("costs", "measured times of operators", 200_000_000, version=5)
VERIFIED_RULES = Cache("verified_rules", "rules that were verified here", 5_000_000, version=1)
MINIMA = Cache("minima", "minima of functions", 50_000_000, version=1)
