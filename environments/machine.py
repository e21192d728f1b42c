"""What this machine offers: processors, and a place for what is expensive to find out."""

from __future__ import annotations

import os
import pathlib


def num_processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cache_directory() -> pathlib.Path:
    """Return $XDG_CACHE_HOME/tfrl, or ~/.cache/tfrl if that variable is not set."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return pathlib.Path(base).expanduser() / "tfrl"
