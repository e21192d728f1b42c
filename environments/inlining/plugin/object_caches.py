"""Caches of objects between a build and its compiler: which policy an object is of.

None of them knows of the plugin. Each would hand out an object that another policy decided, so each
is told of the policy, or gets a place of its own.
"""

from __future__ import annotations

import os
import pathlib
import subprocess

from environments import machine

COMPILE_ANEW = {"CCACHE_RECACHE": "1", "SCCACHE_RECACHE": "1"}
"""Environment variables by which caches keep objects and hand out none."""

_TIMEOUT_S = 10.0


def cache_variables(directory: pathlib.Path, margin: str) -> dict[str, str]:
    """Return environment variables that keep the objects of one policy apart.

    Args:
      directory: what clangs load. Its name depends on all that is in it.
      margin: what takes the place of the policy's own margin; "" for nothing.
    """
    digest = "-".join(filter(None, [directory.name, margin]))
    files = sorted(os.fspath(path) for path in directory.iterdir() if path.name[0] != ".")
    extra = [_ccache_setting("extra_files_to_hash", "CCACHE_EXTRAFILES"), *files]
    space = [_ccache_setting("namespace", "CCACHE_NAMESPACE"), digest]
    buster = [os.environ.get("SCCACHE_C_CUSTOM_CACHE_BUSTER", ""), digest]
    return {
        # A build may set either of these itself.
        "CCACHE_EXTRAFILES": os.pathsep.join(filter(None, extra)),
        "CCACHE_NAMESPACE": "-".join(filter(None, space)),
        "SCCACHE_C_CUSTOM_CACHE_BUSTER": "-".join(filter(None, buster)),
        # Go's cache has no key of ours.
        "GOCACHE": f"{_go_cache()}-{digest}",
    }


def _ccache_setting(key: str, variable: str) -> str:
    """Return a setting of ccache, from the environment or from the user's own files."""
    setting = _answer("ccache", "--get-config", key)
    return os.environ.get(variable, "") if setting is None else setting


def _go_cache() -> str:
    """Return where Go keeps objects; it need not be on PATH now to be called by the build."""
    place = _answer("go", "env", "GOCACHE") or os.environ.get("GOCACHE")
    return place or str(machine.cache_home() / "go-build")


def _answer(*command: str) -> str | None:
    """Return what a program prints; None if it is not there or fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else os.fsdecode(done.stdout).strip()
