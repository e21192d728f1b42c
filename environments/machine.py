"""What this machine offers: processors, and a place for what is expensive to find out."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import pwd
import sys
from collections.abc import Iterable


def num_processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def search_path() -> list[str]:
    """Return this process's sys.path, for a process with the same working directory."""
    return [place or str(pathlib.Path.cwd()) for place in sys.path]


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the installed version of each package, by its name; "" for one that is missing."""
    by_name = {}
    for name in names:
        try:
            by_name[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            by_name[name] = ""
    return by_name


def home_directory() -> pathlib.Path:
    """Return the user's home directory.

    If HOME is not set, and this user has no entry in the list of users, it is the root directory:
    Docker sets HOME to that, too.
    """
    if home := os.environ.get("HOME"):
        return pathlib.Path(home)
    try:
        return pathlib.Path(pwd.getpwuid(os.getuid()).pw_dir or "/")
    except KeyError:
        return pathlib.Path("/")


def cache_home() -> pathlib.Path:
    """Return where this user's programs keep caches: $XDG_CACHE_HOME, or ~/.cache if not set."""
    if base := os.environ.get("XDG_CACHE_HOME"):
        # pathlib's own raises where there is no such home.
        return pathlib.Path(os.path.expanduser(base))  # noqa: PTH111
    return home_directory() / ".cache"


def cache_directory() -> pathlib.Path:
    """Return the directory of our caches, $XDG_CACHE_HOME/tfrl or ~/.cache/tfrl."""
    return cache_home() / "tfrl"
