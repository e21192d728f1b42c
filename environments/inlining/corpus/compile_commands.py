"""Read compilation databases: compile_commands.json, as CMake, Meson and bear write it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
from collections.abc import Sequence
from typing import Any

from environments import files
from environments.errors import UserError
from environments.inlining.corpus.modules import language_of
from environments.inlining.corpus.projects import find_project_root
from environments.inlining.corpus.units import CompileUnit, safe_name

FILE_NAME = "compile_commands.json"
_CMAKE_HOME = re.compile(r"^CMAKE_HOME_DIRECTORY:\w+=(.+)$", re.MULTILINE)
# Options with a separate argument that say where results go, what is linked, or how to optimise.
_DROP_WITH_ARGUMENT = frozenset(
    ("-o", "-MF", "-MT", "-MQ", "-MJ", "-arch", "-l", "-L", "-Xlinker", "-u", "-T", "-z", "--param")
    + ("-target", "-Xclang", "-mllvm", "-B", "-wrapper", "--config")
)
_DROP = re.compile(
    r"-(c|S|E|o.+|O.*|g.*|M.*|l.+|L.+|W.*|w|pg?|pipe|rdynamic|shared|static.*|save-temps.*"
    r"|pedantic.*|-coverage|-param=.*|emit-llvm|fembed-bitcode.*|flto.*|f(no-)?fat-lto-objects"
    r"|fprofile.*|ftest-coverage|fsanitize.*|fno-sanitize.*|fdiagnostics.*|fcolor-diagnostics"
    r"|f(no-)?omit-frame-pointer|fpass-plugin=.*|f(no-)?(ipa|tree|gcse|var-tracking|gnu-unique"
    r"|conserve-stack|allow-store-data-races|reorder-blocks|gnu-tm)\b.*"
    r"|m(arch|cpu|tune)=.*|mno-omit-leaf-frame-pointer|m32|mx32|-target=.*"
    # Options that make the compiler load or run other code.
    r"|fplugin.*|B.+|-config.*)"
)


def read_units(path: pathlib.Path, project: str = "") -> list[CompileUnit]:
    """Read the units of a compilation database.

    Args:
        path: the compile_commands.json.
        project: first component of the module names; by default the name of the project's root.
            CMake's cache names the root; for other build systems, `find_project_root` finds it.

    Returns:
        One unit for each entry that compiles C or C++.

    Raises:
        UserError: if the file cannot be read or is not a compilation database.
    """
    remedy = "let the build write it again (cmake -DCMAKE_EXPORT_COMPILE_COMMANDS=ON, or bear)"
    try:
        entries = files.read_json(path)
    except (OSError, ValueError) as error:
        raise UserError(f"expected a JSON list in {path}, found: {error}; {remedy}") from None
    if not isinstance(entries, list):
        raise UserError(f"expected a JSON list in {path}, found another value; {remedy}")
    parsed = []
    for number, entry in enumerate(entries):
        try:
            parsed.append(_parse_entry(path.parent, entry))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"expected directory, file and command in entry {number} of {path}, "
                f"found: {error!r}; {remedy}"
            ) from None
    parsed = [entry for entry in parsed if entry[2] != "unknown"]
    if not parsed:
        return []
    root = pathlib.Path(os.path.commonpath([file.parent for _, file, _, _ in parsed]))
    home = _cmake_home(path) or find_project_root(root)
    project = project or home.name
    top = home if root.is_relative_to(home) else root
    return [
        CompileUnit(
            name=safe_name(f"{project}/{file.relative_to(top).as_posix()}"),
            source=os.path.relpath(file, directory),
            directory=directory,
            root=root,
            language=language,
            argument_sets=(arguments,),
        )
        for directory, file, language, arguments in parsed
    ]


def clean_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Keep only those of a build's compiler options that determine what the source means.

    Args:
        arguments: options without the compiler itself and without the source file.

    Returns:
        The options that select includes, macros, the language and its dialect. Optimisation,
        target, warnings, debug information, outputs and linking are left out.
    """
    kept: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument in _DROP_WITH_ARGUMENT:
            next(rest, None)
        elif not _DROP.fullmatch(argument):
            kept.append(argument)
    return tuple(kept)


def _cmake_home(path: pathlib.Path) -> pathlib.Path | None:
    """Return the top of the source tree from CMake's cache; None if there is no cache."""
    for directory in (path.parent, path.resolve().parent):
        with contextlib.suppress(OSError):
            cache = (directory / "CMakeCache.txt").read_text(errors="replace")
            if found := _CMAKE_HOME.search(cache):
                return pathlib.Path(os.path.normpath(found[1]))
    return None


def _parse_entry(
    base: pathlib.Path, entry: dict[str, Any]
) -> tuple[pathlib.Path, pathlib.Path, str, tuple[str, ...]]:
    """Return directory, file, language and cleaned options of one database entry."""
    directory = pathlib.Path(os.path.normpath(base / entry["directory"]))
    file = pathlib.Path(os.path.normpath(directory / entry["file"]))
    words = entry.get("arguments")
    if words is None:
        words = shlex.split(str(entry["command"]))
    if not words or not all(isinstance(word, str) for word in words):
        raise ValueError("no command")
    for text in (*words, str(file)):
        if b"\0" in os.fsencode(text):  # Half a character is a ValueError, too.
            raise ValueError("a zero byte")
    files.checked_path(str(file))
    language = language_of(file)
    # The compiler is the last word before the first option, as in `ccache c++ -c ...`.
    first_option = next((i for i, word in enumerate(words) if word.startswith("-")), 1)
    driver = pathlib.PurePath(words[max(0, first_option - 1)]).name
    if language == "c" and "++" in driver:
        language = "c++"
    options = [
        word
        for word in words[max(1, first_option) :]
        if word.startswith("-") or pathlib.Path(os.path.normpath(directory / word)) != file
    ]
    return directory, file, _explicit_language(options, language), clean_arguments(options)


def _explicit_language(options: Sequence[str], language: str) -> str:
    """Return the language that an `-x` option gives, or else `language`."""
    joined = [option[2:] for option in options if option.startswith("-x") and len(option) > 2]
    after = [word for option, word in zip(options, options[1:], strict=False) if option == "-x"]
    for word in (*joined, *after):
        if word in ("c", "c++"):
            language = word
    return language
