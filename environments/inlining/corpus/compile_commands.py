"""Read compilation databases: compile_commands.json, as CMake, Meson, Bazel and bear write it.

An entry of a database may be unusable: a tool wrote it wrongly, or for another kind of source. Such
an entry does not spoil the others: it is named with the reason, or counted with those of its kind.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from environments import files
from environments.errors import UserError
from environments.inlining.corpus import compile_options
from environments.inlining.corpus.command_lines import (
    CommandLine,
    expand_response_files,
    parse_command,
    program_name,
)
from environments.inlining.corpus.modules import language_of
from environments.inlining.corpus.units import (
    CompileUnit,
    Gathered,
    NotCompiled,
    find_project_root,
    safe_name,
)

FILE_NAME = "compile_commands.json"
_CMAKE_HOME = re.compile(r"^CMAKE_HOME_DIRECTORY:\w+=(.+)$", re.MULTILINE)
_REMEDY = "let the build write it again (cmake -DCMAKE_EXPORT_COMPILE_COMMANDS=ON, or bear)"
_NONE = ", found none; let the build write it again"
_LANGUAGES = {"c": "c", "cpp-output": "c", "c++": "c++", "c++-cpp-output": "c++"}
# Values of -x that are no language, such as a processor of Intel's compiler, change nothing.
_OTHER_LANGUAGES = re.compile(
    r"(c|c\+\+|objective-c|objective-c\+\+)(-\w+)*-header|objective-.*|c\+\+-module.*|assembler.*"
    r"|cu|cuda.*|hip.*|cl|clcpp|ir|ada|d|go|f\d\d.*|hlsl|renderscript|swift"
)


@dataclasses.dataclass(frozen=True)
class _Entry:
    directory: pathlib.Path  # where the compiler runs
    file: pathlib.Path
    language: str  # "c" or "c++"; "" for what is neither
    kind: str = ""  # of what is neither, for instance ".S" or "-x cuda"
    options: tuple[str, ...] = ()  # the source is among them


def read_units(path: pathlib.Path, project: str = "") -> Gathered:
    """Read the units of a compilation database.

    Args:
        path: the compile_commands.json.
        project: first component of the module names; by default the name of the project's root.
            CMake's cache names the root; for other build systems, `find_project_root` finds it.

    Returns:
        One unit for each entry that compiles C or C++, or is to do so and cannot be used.

    Raises:
        UserError: if the file cannot be read, is not a compilation database or has no usable entry.
    """
    entries: list[_Entry] = []
    unusable: list[tuple[str, str]] = []
    for number, value in enumerate(_read_json(path)):
        try:
            entries.append(_parse_entry(path.parent, value))
        except ValueError as error:
            file = value.get("file") if isinstance(value, dict) else None
            name = file if isinstance(file, str) and file else f"entry-{number}"
            unusable.append((name, f"entry {number} of {path.name}: {error}"))
    sources = [entry for entry in entries if entry.language]
    skipped = collections.Counter(entry.kind for entry in entries if not entry.language)
    if not sources:
        _refuse(path, unusable, skipped)
    root = pathlib.Path(os.path.commonpath([entry.file.parent for entry in sources]))
    home = _cmake_home(path) or find_project_root(root)
    project = project or home.name
    top = home if root.is_relative_to(home) else root
    headers = _precompiled(entries)
    units = (_compile_unit(entry, project, top, root, headers) for entry in sources)
    damaged = (
        NotCompiled(safe_name(f"{project}/{_relative(name, top)}"), name, error)
        for name, error in unusable
    )
    return Gathered((*units, *damaged), skipped)


def _read_json(path: pathlib.Path) -> list[Any]:
    try:
        # Names of files may be in any encoding: build systems write the bytes as they are.
        entries = files.read_json(path, errors="surrogateescape")
    except (OSError, ValueError) as error:
        raise UserError(f"expected a JSON list in {path}, found: {error}; {_REMEDY}") from None
    if not isinstance(entries, list):
        raise UserError(f"expected a JSON list in {path}, found another value; {_REMEDY}")
    return entries


def _refuse(
    path: pathlib.Path, unusable: Sequence[tuple[str, str]], skipped: Mapping[str, int]
) -> None:
    reason = f"none ({unusable[0][1]})" if unusable else "none"
    if skipped:
        reason += f", but {count_kinds(skipped)}"
    raise UserError(
        f"expected at least one entry that compiles C or C++ in {path}, found {reason}; {_REMEDY}"
    )


def count_kinds(skipped: Mapping[str, int]) -> str:
    """Return kinds of sources with their numbers, as a text."""
    return ", ".join(f"{number} {kind}" for kind, number in sorted(skipped.items()))


def _compile_unit(
    entry: _Entry,
    project: str,
    top: pathlib.Path,
    root: pathlib.Path,
    headers: Mapping[pathlib.Path, pathlib.Path],
) -> CompileUnit:
    """Return the unit of an entry, with only those options that say what the source means."""
    directory = entry.directory

    def header_fn(precompiled: str) -> str | None:
        beside = re.sub(r"\.[pg]ch$", "", precompiled)
        if files.is_file(directory / beside):
            return beside
        header = headers.get(_normal(directory, precompiled))
        return os.path.relpath(header, directory) if header else None

    options = compile_options.clean_arguments(entry.options, header_fn)
    source = os.path.relpath(entry.file, directory)
    if (directory / source).resolve() != entry.file.resolve():  # The directory is a link.
        source = os.path.relpath(entry.file, directory.resolve())
    return CompileUnit(
        name=safe_name(f"{project}/{_relative(str(entry.file), top)}"),
        source=source,
        directory=directory,
        root=root,
        language=entry.language,
        argument_sets=compile_options.header_sets(
            options, lambda place: files.is_directory(directory / place)
        ),
    )


def _precompiled(entries: Iterable[_Entry]) -> dict[pathlib.Path, pathlib.Path]:
    """Return the headers from which the entries of a database make precompiled headers."""
    return {
        _normal(entry.directory, option[1]): entry.file
        for entry in entries
        if entry.kind.endswith("header")
        for option in compile_options.option_groups(entry.options)
        if option[0] == "-o" and len(option) > 1
    }


def _cmake_home(path: pathlib.Path) -> pathlib.Path | None:
    """Return the top of the source tree from CMake's cache; None if there is no cache."""
    for directory in (path.parent, path.resolve().parent):
        with contextlib.suppress(OSError):
            cache = (directory / "CMakeCache.txt").read_text(errors="replace")
            if match := _CMAKE_HOME.search(cache):
                return pathlib.Path(os.path.normpath(match[1]))
    return None


def _parse_entry(base: pathlib.Path, entry: Any) -> _Entry:
    """Return what an entry compiles, or its other kind; a damaged one is a ValueError."""
    if not isinstance(entry, dict):
        raise ValueError(f"expected an object{_NONE}")
    directory = _normal(base, _text(entry, "directory"))
    file = _normal(directory, _text(entry, "file"))
    language = language_of(file)
    try:
        line = _command_line(entry.get("arguments") or entry.get("command"), directory)
        if line.directory != directory and not files.exists(file):
            file = _normal(line.directory, entry["file"])
        has_other_options = line.mode in ("internal", "cl")
        if language != "unknown" and (has_other_options or not line.compiles):
            kind = f"{line.driver} -cc1" if line.mode == "internal" else line.driver
            return _Entry(directory, file, "", kind)
        options = tuple(expand_response_files(line.options, line.directory))
    except ValueError:
        if language == "unknown":
            return _Entry(directory, file, "", file.suffix or "without suffix")
        raise
    return _with_language(_Entry(line.directory, file, language, "", options), line.mode)


def _with_language(entry: _Entry, mode: str) -> _Entry:
    """Return an entry with the language that its options say, or else the file's suffix."""
    language = "c++" if entry.language == "c" and mode == "g++" else entry.language
    explicit = _explicit_language(entry.options, entry.file.name)
    if explicit:
        language = _LANGUAGES.get(explicit, "")
    if language in ("c", "c++"):
        return dataclasses.replace(entry, language=language)
    by_suffix = language_of(entry.file) != "unknown" or explicit.endswith("-header")
    kind = f"-x {explicit}" if by_suffix else entry.file.suffix or "without suffix"
    return dataclasses.replace(entry, language="", kind=kind)


def _explicit_language(options: Sequence[str], source: str) -> str:
    """Return the language that `-x` gives to the source, or ""."""
    language = ""
    for group in compile_options.option_groups(options):
        value = group[1] if group[0] == "-x" else group[0].removeprefix("-x")
        if group[0].startswith("-x"):
            if value in (*_LANGUAGES, "none") or _OTHER_LANGUAGES.fullmatch(value):
                language = value.removeprefix("none")
        elif len(group) == 1 and group[0].endswith(source) and program_name(group[0]) == source:
            break
    return language


def _command_line(command: Any, directory: pathlib.Path) -> CommandLine:
    """Return the command of an entry, taken apart; one that is none is a ValueError."""
    words = command if isinstance(command, list) else [command]
    if not command or not all(isinstance(word, str) for word in words):
        raise ValueError(f"expected a command as text or a list of words{_NONE}")
    for word in words:
        if b"\0" in os.fsencode(word):  # Half a character is a ValueError, too.
            raise ValueError("expected a command, found a zero byte in it")
    return parse_command(command, directory)


def _text(entry: Mapping[str, Any], field: str) -> str:
    """Return the name of a file or directory in an entry; a ValueError if there is none."""
    value = entry.get(field)
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected {field} as text{_NONE}")
    try:
        files.checked_path(value)
    except ValueError:
        raise ValueError(f"expected {field} as a name that a file can have{_NONE}") from None
    return value


def _normal(directory: pathlib.Path, name: str) -> pathlib.Path:
    """Return an absolute path without "..": through links to directories, where it really leads."""
    path = directory / name
    normal = pathlib.Path(os.path.normpath(path))
    real = pathlib.Path(os.path.realpath(path))
    return real if files.exists(path) and real != pathlib.Path(os.path.realpath(normal)) else normal


def _relative(file: str, top: pathlib.Path) -> str:
    """Return the part of a path below the top of a project; of a path elsewhere its last part."""
    path = pathlib.PurePath(file)
    if path.is_relative_to(top):
        return path.relative_to(top).as_posix()
    return path.name if path.is_absolute() else path.as_posix()
