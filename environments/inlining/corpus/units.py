"""Units, from which modules are made, and their names, which begin with that of the project."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Mapping

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


@dataclasses.dataclass(frozen=True)
class CompileUnit:
    """A source file to compile.

    Attributes:
        name: name of the module.
        source: the source file, relative to `directory`, so that the bitcode does not depend on the
            place of the checkout.
        directory: where the compiler runs.
        root: the path that the compiler replaces by "." in file names, as in `__FILE__`.
        language: "c" or "c++".
        argument_sets: sets of compiler options; tried in turn until one works.
    """

    name: str
    source: str
    directory: pathlib.Path
    root: pathlib.Path
    language: str
    argument_sets: tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True)
class BitcodeUnit:
    """A bitcode file to take over as it is."""

    name: str
    path: pathlib.Path

    @property
    def source(self) -> str:
        """The file, as messages name it."""
        return str(self.path)


@dataclasses.dataclass(frozen=True)
class NotCompiled:
    """A source that gave no module, or an entry of a compile database that makes no sense.

    Attributes:
        name: what the module would have been called.
        source: the file, or which entry it is.
        error: first line of the compiler's error, or why the entry cannot be compiled.
    """

    name: str
    source: str
    error: str


Unit = CompileUnit | BitcodeUnit | NotCompiled


@dataclasses.dataclass(frozen=True)
class Gathered:
    """What the sources of a corpus consist of.

    Attributes:
        units: what can become a module.
        skipped: number of sources that are neither C nor C++, by kind, for instance {".S": 3}.
    """

    units: tuple[Unit, ...]
    skipped: Mapping[str, int]


def safe_name(name: str) -> str:
    """Make a module name from a path, without parts that leave the corpus or confuse tools."""
    parts = [re.sub(r"[^\w.+@=-]", "_", part, flags=re.ASCII) for part in name.split("/")]
    return "/".join(part for part in parts if part not in ("", ".", ".."))


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
