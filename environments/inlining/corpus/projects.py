"""Finds the project that a source belongs to: its top directory gives the project its name."""

from __future__ import annotations

import pathlib

_REPOSITORIES = (".git", ".hg", ".svn")
_BUILD_FILES = (
    "BUILD.bazel",
    "CMakeLists.txt",
    "Makefile",
    "Makefile.am",
    "PKG-INFO",
    "SConstruct",
    "configure",
    "configure.ac",
    "meson.build",
    "pyproject.toml",
    "setup.py",
)


def find_project_root(directory: pathlib.Path) -> pathlib.Path:
    """Finds the top of the project that a directory belongs to.

    That is the nearest directory upwards that is a repository or has a build file. If the
    directories above it have build files as well, it is the uppermost of these, because a
    CMakeLists.txt or a Makefile often stands in each folder of a project; it is never above a
    repository's top. The user's home directory and what lies above are nobody's project.

    Args:
        directory: absolute path of a directory with sources.

    Returns:
        The top, or `directory` itself if nothing marks a project.
    """
    home = pathlib.Path.home()
    found = None
    for candidate in (directory, *directory.parents):
        if candidate in (home, *home.parents):
            break
        if _has_any(candidate, _REPOSITORIES):
            return candidate
        if _has_any(candidate, _BUILD_FILES):
            found = candidate
        elif found is not None:
            break
    return found or directory


def _has_any(directory: pathlib.Path, names: tuple[str, ...]) -> bool:
    return any((directory / name).exists() for name in names)
