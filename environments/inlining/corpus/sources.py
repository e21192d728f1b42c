"""Turn the sources of a corpus into units: compile_commands.json, source trees, bitcode files.

A unit is a `CompileUnit` (a source file and the options that it needs), a `BitcodeUnit` or a
`NotCompiled`. Nothing is compiled here.
"""

from __future__ import annotations

import collections
import dataclasses
import errno
import os
import pathlib
import stat
from collections.abc import Iterable, Sequence

from environments.errors import UserError
from environments.inlining.corpus import compile_commands
from environments.inlining.corpus.modules import language_of
from environments.inlining.corpus.units import (
    BitcodeUnit,
    CompileUnit,
    Gathered,
    Unit,
    find_project_root,
    safe_name,
)

_BITCODE_MAGICS = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
_HEADER_SUFFIXES = {".h", ".hh", ".hpp", ".hxx", ".inc", ".inl", ".ipp", ".tcc"}
# Sources of other languages, or of kinds that need more than a compiler of C and C++.
_OTHER_SUFFIXES = frozenset(
    (".S", ".s", ".asm", ".m", ".mm", ".cu", ".hip", ".cppm", ".ixx", ".f", ".f90", ".rs", ".ispc")
)
_STANDARDS = {"c": ("-std=gnu11",), "c++": ("-std=c++17",)}


def gather_units(sources: Iterable[str | pathlib.Path], project: str = "") -> Gathered:
    """Find everything that can become a module.

    Args:
        sources: each is a compile_commands.json, a directory (one that holds a
            compile_commands.json, a source tree, or bitcode files), a bitcode file or a C or C++
            file.
        project: first component of the modules' names; by default the name of the project that
            each source belongs to (see `find_project_root`). If several source trees of one project
            are given, each counts as a project of its own.

    Returns:
        Units with distinct names, sorted by name, and how many sources are of other kinds.

    Raises:
        UserError: if one of the sources is missing, of another kind, or holds nothing to compile.
    """
    units: list[Unit] = []
    skipped: collections.Counter[str] = collections.Counter()
    paths = [pathlib.Path(source).absolute() for source in sources]
    for path in paths:
        _check_source(path)
    trees = [path for path in paths if path.is_dir() and not _has_database(path)]
    tops = {path: find_project_root(path) for path in trees}
    for path in paths:
        top = tops.get(path)
        is_shared = top is not None and list(tops.values()).count(top) > 1
        gathered = _gather(path, project or (path.name if is_shared else ""))
        if not gathered.units:
            raise UserError(
                f"expected C or C++ sources or bitcode in {path}, found none; "
                f"name a {compile_commands.FILE_NAME}, a source tree or bitcode files"
            )
        units.extend(gathered.units)
        skipped.update(gathered.skipped)
    named = sorted(_with_distinct_names(units), key=lambda unit: unit.name)
    return Gathered(tuple(named), skipped)


def is_bitcode(path: pathlib.Path) -> bool:
    """Return whether a file's first bytes are those of LLVM bitcode."""
    with path.open("rb") as file:
        return file.read(4) in _BITCODE_MAGICS


def _check_source(path: pathlib.Path) -> None:
    """Check that there is a directory or a file, which can be read without waiting for a writer."""
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            return
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "not a regular file")
        with path.open("rb") as file:
            file.read(1)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise UserError(
            f"expected a source of modules at {path}, found: {reason}; name another"
        ) from None


def _gather(path: pathlib.Path, project: str) -> Gathered:
    if path.is_dir():
        if _has_database(path):
            return compile_commands.read_units(path / compile_commands.FILE_NAME, project)
        return _from_directory(path, project)
    if path.suffix == ".json":
        return compile_commands.read_units(path, project)
    if is_bitcode(path):
        name = safe_name(f"{project}/{path.name.removesuffix('.bc')}")
        return Gathered((BitcodeUnit(name, path),), {})
    if language_of(path) != "unknown":
        return Gathered(_tree_units(path.parent, [path], project), {})
    raise UserError(
        f"expected {compile_commands.FILE_NAME}, a C or C++ source or LLVM bitcode, found {path}; "
        "bitcode begins with the bytes 'BC' 0xC0 0xDE"
    )


def _has_database(directory: pathlib.Path) -> bool:
    return (directory / compile_commands.FILE_NAME).is_file()


def _from_directory(directory: pathlib.Path, project: str) -> Gathered:
    """Return units of the C and C++ files in a directory tree, or else of its bitcode files."""
    files = _files_below(directory)
    sources = [path for path in files if language_of(path) != "unknown"]
    if sources:
        suffixes = [path.suffix for path in files if path.suffix in _OTHER_SUFFIXES]
        return Gathered(_tree_units(directory, sources, project), collections.Counter(suffixes))
    bitcode = (
        BitcodeUnit(
            safe_name(f"{project or directory.name}/{path.relative_to(directory).as_posix()[:-3]}"),
            path,
        )
        for path in files
        if path.suffix == ".bc" and not path.name.endswith(".thinlto.bc")
    )
    return Gathered(tuple(bitcode), {})


def _tree_units(
    root: pathlib.Path, sources: Iterable[pathlib.Path], project: str
) -> tuple[CompileUnit, ...]:
    """Make the units of a tree's sources, guessing include directories from places of headers."""
    headers = _header_directories(root)
    top = root if project else find_project_root(root)
    units = []
    for source in sources:
        relative = source.relative_to(root)
        language = language_of(source)
        guesses = _include_sets(relative, headers)
        units.append(
            CompileUnit(
                name=safe_name(f"{project or top.name}/{source.relative_to(top).as_posix()}"),
                source=relative.as_posix(),
                directory=root,
                root=root,
                language=language,
                argument_sets=tuple((*_STANDARDS[language], *includes) for includes in guesses),
            )
        )
    return tuple(units)


def _files_below(directory: pathlib.Path) -> list[pathlib.Path]:
    """Return a tree's regular files, sorted, without hidden and linked directories."""
    paths: list[pathlib.Path] = []
    for where, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        paths.extend(pathlib.Path(where, name) for name in sorted(names))
    return [path for path in paths if path.is_file()]


def _header_directories(root: pathlib.Path) -> tuple[pathlib.PurePosixPath, ...]:
    """Return the directories that hold headers, relative to the root, those near the root first."""
    directories = {
        pathlib.PurePosixPath(path.parent.relative_to(root).as_posix())
        for path in _files_below(root)
        if path.suffix in _HEADER_SUFFIXES
    }
    return tuple(sorted(directories, key=lambda path: (len(path.parts), str(path))))


def _include_sets(
    source: pathlib.Path, headers: Sequence[pathlib.PurePosixPath]
) -> list[tuple[str, ...]]:
    """Return sets of -I options for a source: near directories, all with headers, its own."""
    own = pathlib.PurePosixPath(source.parent.as_posix())
    above = [own, *own.parents]
    includes = [parent / name for parent in above for name in ("include", "inc", "src")]
    near = [*above, *(path for path in includes if path in headers or _holds(path, headers))]
    every = [*near, *headers, *(parent for path in headers for parent in path.parents)]
    sets = (near, every, [own])
    return [tuple(f"-I{path}" for path in dict.fromkeys(paths)) for paths in sets]


def _holds(path: pathlib.PurePosixPath, headers: Sequence[pathlib.PurePosixPath]) -> bool:
    """Return whether a directory has headers somewhere below it."""
    return any(path in header.parents for header in headers)


def _with_distinct_names(units: Iterable[Unit]) -> list[Unit]:
    """Add numbers to equal names, for instance if a source is compiled twice."""
    taken: set[str] = set()
    result = []
    for unit in units:
        name, number = unit.name, 1
        while name in taken:
            number += 1
            name = f"{unit.name}-{number}"
        taken.add(name)
        result.append(dataclasses.replace(unit, name=name))
    return result
