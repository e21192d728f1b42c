"""Where things are kept that are dear to find out: compiles, minima."""

from __future__ import annotations

import os
import pathlib


def cache_directory() -> pathlib.Path:
    """$XDG_CACHE_HOME/tfrl; ~/.cache/tfrl where that is not set."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return pathlib.Path(base).expanduser() / "tfrl"


def default_compiles() -> pathlib.Path:
    """The file of compiles."""
    return cache_directory() / "compiles.db"
