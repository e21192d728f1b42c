"""Find the project that a source belongs to; the project is named after its top directory."""

from __future__ import annotations

import pathlib

from environments import machine

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
    """Find the top of the project that a directory belongs to.

    The search goes upwards from the directory. The top is the first repository that it meets. If it
    meets a build file first, it goes on while the next directory has one too, because a
    CMakeLists.txt or a Makefile often stands in each folder of a project. The top is then the
    uppermost of these directories, or a repository that directly follows them. The user's home
    directory and the directories above it belong to no project.

    Returns:
        The top, or `directory` itself if nothing marks a project.
    """
    home = machine.home_directory()
    top = None
    for candidate in (directory, *directory.parents):
        if candidate in (home, *home.parents):
            break
        if any((candidate / name).exists() for name in _REPOSITORIES):
            return candidate
        if any((candidate / name).exists() for name in _BUILD_FILES):
            top = candidate
        elif top is not None:
            break
    return top or directory
