"""A copy of what is installed from a checkout: builds write beside their sources."""

from __future__ import annotations

import pathlib
import shutil

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = ("environments", "tfrl_systems")


def copy_sources(directory: pathlib.Path) -> pathlib.Path:
    """Copy the packages, and what their installation reads, into a directory."""
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, directory / package, ignore=ignored)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, directory)
    return directory
