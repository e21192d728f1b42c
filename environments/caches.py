"""Where the project keeps what is expensive to find out: compiles, measured costs, minima."""

from __future__ import annotations

import os
import pathlib


def cache_directory() -> pathlib.Path:
    """Return $XDG_CACHE_HOME/tfrl, or ~/.cache/tfrl if that variable is not set."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return pathlib.Path(base).expanduser() / "tfrl"
