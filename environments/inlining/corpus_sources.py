"""What a corpus is built from: compile_commands.json, source trees, bitcode files.

Each is turned into `CompileUnit`s (a source and the options it needs) or `BitcodeUnit`s. Nothing is
compiled here.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from environments.errors import UserError
from environments.inlining.corpus import language_of

COMPILE_COMMANDS = "compile_commands.json"
_BITCODE_MAGICS = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")
_HEADER_SUFFIXES = {".h", ".hh", ".hpp", ".hxx", ".inc", ".inl", ".ipp", ".tcc"}
_STANDARDS = {"c": ("-std=gnu11",), "c++": ("-std=c++17",)}
# Options that say where results go, what is linked, or how to optimise; with their own argument.
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
    # What would have the compiler load or run other code.
    r"|fplugin.*|B.+|-config.*)"
)


@dataclasses.dataclass(frozen=True)
class CompileUnit:
    """A source file to compile.

    Attributes:
        name: module name in the corpus.
        source: the source file, relative to `directory`, so that the bitcode does not say where
            the checkout lies.
        directory: where the compiler runs.
        root: the path that is written as "." wherever the source asks for its own name.
        language: "c" or "c++".
        argument_sets: options to compile it with; tried in turn until one works.
    """

    name: str
    source: str
    directory: pathlib.Path
    root: pathlib.Path
    language: str
    argument_sets: tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True)
class BitcodeUnit:
    """A bitcode file to take over as it is.

    Attributes:
        name: module name in the corpus.
        path: the file.
    """

    name: str
    path: pathlib.Path


Unit = CompileUnit | BitcodeUnit


def gather_units(sources: Iterable[str | pathlib.Path]) -> tuple[Unit, ...]:
    """Finds everything that can become a module.

    Args:
        sources: each a compile_commands.json, a directory (one that holds a compile_commands.json,
            a source tree, or bitcode files), a bitcode file or a C or C++ file.

    Returns:
        Units with distinct names, sorted by name.

    Raises:
        UserError: if one of the sources is missing, of another kind, or holds nothing to compile.
    """
    units: list[Unit] = []
    for source in sources:
        path = pathlib.Path(source).absolute()
        found = _gather(path)
        if not found:
            raise UserError(
                f"expected C or C++ sources or bitcode in {path}, found none; "
                f"name a {COMPILE_COMMANDS}, a source tree or bitcode files"
            )
        units.extend(found)
    return tuple(sorted(_with_distinct_names(units), key=lambda unit: unit.name))


def is_bitcode(path: pathlib.Path) -> bool:
    """Tells from its first bytes whether a file claims to be LLVM bitcode."""
    with path.open("rb") as file:
        return file.read(4) in _BITCODE_MAGICS


def clean_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Keeps of a build's compiler options those that say what the source means.

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


def _gather(path: pathlib.Path) -> list[Unit]:
    """The units of one source."""
    if path.is_dir():
        if (path / COMPILE_COMMANDS).is_file():
            return list(_from_compile_commands(path / COMPILE_COMMANDS))
        return _from_directory(path)
    if not path.exists():
        raise UserError(f"expected a source of modules at {path}, found no such file or directory")
    if path.suffix == ".json":
        return list(_from_compile_commands(path))
    if is_bitcode(path):
        return [BitcodeUnit(_safe_name(path.name.removesuffix(".bc")), path)]
    if language_of(path) != "unknown":
        return list(tree_units(path.parent, [path]))
    raise UserError(
        f"expected {COMPILE_COMMANDS}, a C or C++ source or LLVM bitcode, found {path}; "
        "bitcode begins with the bytes 'BC' 0xC0 0xDE"
    )


def _from_directory(directory: pathlib.Path) -> list[Unit]:
    """The sources, or else the bitcode files, of a directory tree."""
    files = _files_below(directory)
    sources = [path for path in files if language_of(path) != "unknown"]
    if sources:
        return list(tree_units(directory, sources))
    return [
        BitcodeUnit(
            _safe_name(f"{directory.name}/{path.relative_to(directory).as_posix()[:-3]}"), path
        )
        for path in files
        if path.suffix == ".bc" and not path.name.endswith(".thinlto.bc")
    ]


def tree_units(
    root: pathlib.Path,
    sources: Iterable[pathlib.Path],
    project: str = "",
    arguments: Sequence[str] = (),
    guess: bool = True,
) -> list[CompileUnit]:
    """Units of a source tree, with include directories guessed from where its headers lie.

    Args:
        root: top of the tree.
        sources: files below it.
        project: first component of the module names; the tree's own name by default.
        arguments: options for every source.
        guess: whether to add guessed include directories and language standards.

    Returns:
        One unit for each source. Guesses are, in turn: what lies near the source, every directory
        with headers, the source's own directory.
    """
    headers = _header_directories(root) if guess else ()
    units = []
    for source in sources:
        relative = source.relative_to(root)
        language = language_of(source)
        guesses = _include_sets(relative, headers) if guess else [()]
        dialect = _STANDARDS[language] if guess else ()
        units.append(
            CompileUnit(
                name=_safe_name(f"{project or root.name}/{relative.as_posix()}"),
                source=relative.as_posix(),
                directory=root,
                root=root,
                language=language,
                argument_sets=tuple((*dialect, *arguments, *includes) for includes in guesses),
            )
        )
    return units


def _from_compile_commands(path: pathlib.Path) -> list[CompileUnit]:
    """The units of a compilation database."""
    remedy = "let the build write it again (cmake -DCMAKE_EXPORT_COMPILE_COMMANDS=ON, or bear)"
    try:
        entries = json.loads(path.read_bytes())
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
    return [
        CompileUnit(
            name=_safe_name(f"{root.name}/{file.relative_to(root).as_posix()}"),
            source=os.path.relpath(file, directory),
            directory=directory,
            root=root,
            language=language,
            argument_sets=(arguments,),
        )
        for directory, file, language, arguments in parsed
    ]


def _parse_entry(
    base: pathlib.Path, entry: dict[str, Any]
) -> tuple[pathlib.Path, pathlib.Path, str, tuple[str, ...]]:
    """One entry of a compilation database: directory, file, language, cleaned options."""
    directory = pathlib.Path(os.path.normpath(base / entry["directory"]))
    file = pathlib.Path(os.path.normpath(directory / entry["file"]))
    words = entry.get("arguments")
    if words is None:
        words = shlex.split(entry["command"])
    if not words or not all(isinstance(word, str) for word in words):
        raise ValueError("no command")
    language = language_of(file)
    # `ccache c++ ...`: the compiler is the last word before the first option.
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
    """The language after `-x`, where the options hold one."""
    joined = [option[2:] for option in options if option.startswith("-x") and len(option) > 2]
    after = [word for option, word in zip(options, options[1:], strict=False) if option == "-x"]
    for word in (*joined, *after):
        if word in ("c", "c++"):
            language = word
    return language


def _files_below(directory: pathlib.Path) -> list[pathlib.Path]:
    """Regular files of a tree, sorted; hidden directories and links to directories left out."""
    found: list[pathlib.Path] = []
    for where, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        found.extend(pathlib.Path(where, name) for name in sorted(names))
    return [path for path in found if path.is_file()]


def _header_directories(root: pathlib.Path) -> tuple[pathlib.PurePosixPath, ...]:
    """Directories that hold headers, relative to the root, those near it first."""
    found = {
        pathlib.PurePosixPath(path.parent.relative_to(root).as_posix())
        for path in _files_below(root)
        if path.suffix in _HEADER_SUFFIXES
    }
    return tuple(sorted(found, key=lambda path: (len(path.parts), str(path))))


def _include_sets(
    source: pathlib.Path, headers: Sequence[pathlib.PurePosixPath]
) -> list[tuple[str, ...]]:
    """Sets of -I options for a source, the likeliest first."""
    own = pathlib.PurePosixPath(source.parent.as_posix())
    above = [own, *own.parents]
    includes = [parent / name for parent in above for name in ("include", "inc", "src")]
    near = [*above, *(path for path in includes if path in headers or _holds(path, headers))]
    every = [*near, *headers, *(parent for path in headers for parent in path.parents)]
    sets = (near, every, [own])
    return [tuple(f"-I{path}" for path in dict.fromkeys(paths)) for paths in sets]


def _holds(path: pathlib.PurePosixPath, headers: Sequence[pathlib.PurePosixPath]) -> bool:
    """Tells whether headers lie somewhere below a directory."""
    return any(path in header.parents for header in headers)


def _safe_name(name: str) -> str:
    """A module name from a path: nothing that could escape the corpus or upset a tool."""
    parts = [re.sub(r"[^\w.+@=-]", "_", part, flags=re.ASCII) for part in name.split("/")]
    return "/".join(part for part in parts if part not in ("", ".", ".."))


def _with_distinct_names(units: Iterable[Unit]) -> list[Unit]:
    """Numbers units whose names are equal (one source compiled twice, say)."""
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
