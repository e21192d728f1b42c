"""This checkout: for other processes, and copied, since builds write beside their sources."""

from __future__ import annotations

import os
import pathlib
import shutil

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = ("environments", "tfrl_systems")


def environment(**more: object) -> dict[str, str]:
    """Variables for a process that imports this checkout, wherever it runs."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **{name: str(more[name]) for name in more}}


def copy_sources(directory: pathlib.Path) -> pathlib.Path:
    """Copy the packages, and what their installation reads, into a directory."""
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, directory / package, ignore=ignored)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, directory)
    return directory
