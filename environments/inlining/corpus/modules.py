"""A corpus: compiled but not yet optimised modules (LLVM bitcode) in a directory.

The layout on disk is that of ml-compiler-opt, so that each project can read the other's corpora::

    corpus_description.json   {"modules": ["zlib/inflate.c", ...], "has_thinlto": false, ...}
    zlib/inflate.c.bc         the bitcode
    zlib/inflate.c.cmd        the options of `clang -cc1`, separated by NUL; optional here
    zlib/inflate.c.3.import.bc and zlib/inflate.c.thinlto.bc
                              instead, or beside, in a ThinLTO corpus

The same file holds, under the key "tfrl", what only this project records about a module (language,
source, content hash). Other readers ignore that key. Reading needs neither LLVM nor TensorFlow.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from environments import files
from environments.errors import UserError

DESCRIPTION_FILE = "corpus_description.json"
FACTS_KEY = "tfrl"
SOURCES_KEY = "sources"
COMMAND_KEY = "global_command_override"
# ml-compiler-opt's tools ask the user for real options if they find this value; here it means that
# a module needs no options.
UNSPECIFIED_COMMAND = ["<UNSPECIFIED>"]
# The file system limits a name to 255 bytes, of which suffixes take some.
_MAX_PART_BYTES = 240
_MAX_NAME_LENGTH = 1000
_CXX_SUFFIXES = (".cc", ".cpp", ".cxx", ".c++", ".cp")
_LANGUAGE_OF_SUFFIX = {
    ".c": "c",
    **dict.fromkeys(_CXX_SUFFIXES, "c++"),
    # Compilers take these for C++ in capitals, too; only ".C" is C++ because of them.
    **dict.fromkeys((".C", *map(str.upper, _CXX_SUFFIXES)), "c++"),
}


def language_of(source: str | pathlib.PurePath) -> str:
    """Return the language of a source file, from its suffix: "c", "c++" or "unknown"."""
    return _LANGUAGE_OF_SUFFIX.get(pathlib.PurePath(source).suffix, "unknown")


@dataclasses.dataclass(frozen=True)
class Module:
    """One module of a corpus.

    Attributes:
        name: path inside the corpus without the ".bc" suffix; its first component is the project.
        path: the bitcode file.
        project: first component of the name; "." where modules lie flat in the corpus.
        language: "c", "c++" or "unknown".
        command: the options of `clang -cc1` for the module; () if there are none.
        thinlto_index: the ThinLTO index of the module, or None.
    """

    name: str
    path: pathlib.Path
    project: str
    language: str
    command: tuple[str, ...] = ()
    thinlto_index: pathlib.Path | None = None

    def __str__(self) -> str:
        return self.name

    @functools.cached_property
    def sha256(self) -> str:
        """Hash of the bitcode file as it is now, not as the corpus recorded it: for cache keys."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The modules of one directory, sorted by name.

    Attributes:
        modules: all modules in the directory; after `select`, some of them.
        num_sources: number of all sources of a project, by its name, where the modules are made of
            a sample of them.
    """

    directory: pathlib.Path
    modules: tuple[Module, ...]
    num_sources: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def load(cls, directory: str | pathlib.Path) -> Corpus:
        """Read the corpus in a directory.

        Raises:
            UserError: if there is no such corpus, its description is damaged or names files
                outside the directory, or a module's file is missing.
        """
        directory = pathlib.Path(directory)
        description = read_description(directory)
        names = description["modules"]
        facts = _facts(description, "modules", dict)
        modules = tuple(
            _load_module(directory, name, description, facts.get(name, {}))
            for name in sorted(set(names))
        )
        return cls(directory, modules, _facts(description, SOURCES_KEY, int))

    @property
    def projects(self) -> dict[str, tuple[Module, ...]]:
        """The modules of each project, sorted by project and by name."""
        modules_of: dict[str, list[Module]] = collections.defaultdict(list)
        for module in self.modules:
            modules_of[module.project].append(module)
        return {project: tuple(modules_of[project]) for project in sorted(modules_of)}

    def select(self, projects: Iterable[str]) -> Corpus:
        """Return the corpus of some projects only.

        Raises:
            UserError: if one of the projects is not in the corpus.
        """
        wanted = frozenset(projects)
        unknown = sorted(wanted - {module.project for module in self.modules})
        if unknown:
            raise UserError(
                f"expected projects of {self.directory}, found {', '.join(unknown)}; "
                f"it has {', '.join(self.projects)}"
            )
        modules = tuple(module for module in self.modules if module.project in wanted)
        return dataclasses.replace(self, modules=modules)


def largest_first(modules: Iterable[Module]) -> list[Module]:
    """Return modules in the order in which workers that compile them finish at about one time."""
    return sorted(modules, key=lambda module: (-module.path.stat().st_size, module.name))


def describe(corpus: Corpus) -> dict[str, Any]:
    """Summarise a corpus.

    Returns:
        A JSON object: "directory", "modules" (their number), "size_bytes" (of the bitcode),
        "languages" {language: number of modules} and "projects" [{"project", "modules",
        "languages", "size_bytes"}].
    """
    projects = [{"project": name, **_count(modules)} for name, modules in corpus.projects.items()]
    return {"directory": str(corpus.directory), **_count(corpus.modules), "projects": projects}


def read_description(directory: pathlib.Path) -> dict[str, Any]:
    """Read and check `corpus_description.json`.

    Returns:
        The description. "modules" is a list of safe relative names and not empty, "has_thinlto"
        is a bool, and "global_command_override", if present, is a list of strings.

    Raises:
        UserError: if the file is missing, is not JSON, or does not have these fields.
    """
    path = directory / DESCRIPTION_FILE
    make_one = f"make one with `tfrl corpus build SOURCE -o {directory}`"
    if not directory.is_dir():
        raise UserError(f"expected a corpus directory, found none at {directory}; {make_one}")
    try:
        description = files.read_json(path)
    except FileNotFoundError:
        raise UserError(
            f"expected a corpus with {DESCRIPTION_FILE} in {directory}, found none; {make_one}"
        ) from None
    except OSError as error:
        raise UserError(f"expected to read {path}, found: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"expected JSON in {path}, found: {error}; {make_one}") from None
    _check_description(path, description)
    return description


def is_safe_name(name: str) -> bool:
    """Return whether a module name stays inside its corpus: relative, no "..", no odd bytes."""
    parts = name.split("/")
    return (
        bool(name)
        and not any(part in ("", ".", "..") for part in parts)
        and name.isprintable()
        and all(len(part.encode()) <= _MAX_PART_BYTES for part in parts)
        and len(name) <= _MAX_NAME_LENGTH
        and "\\" not in name
    )


def _check_description(path: pathlib.Path, description: Any) -> None:
    remedy = "build the corpus again, or correct the file"
    if not isinstance(description, dict):
        raise UserError(f"expected a JSON object in {path}, found another value; {remedy}")
    names = description.get("modules")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f'expected "modules" as a list of names in {path}; {remedy}')
    if not names:
        raise UserError(f"expected at least one module in {path}, found none; {remedy}")
    for name in names:
        if not is_safe_name(name):
            raise UserError(
                f"expected module names inside the corpus in {path}, found {name!r}; {remedy}"
            )
    if not isinstance(description.setdefault("has_thinlto", False), bool):
        raise UserError(f'expected "has_thinlto" as true or false in {path}; {remedy}')
    command = description.get(COMMAND_KEY, [])
    if not isinstance(command, list) or not all(isinstance(option, str) for option in command):
        raise UserError(
            f'expected "global_command_override" as a list of options in {path}; {remedy}'
        )


def _facts(description: Mapping[str, Any], key: str, kind: type) -> Mapping[str, Any]:
    """Return what we wrote into the description; empty if it is not there or damaged."""
    ours = description.get(FACTS_KEY)
    facts = ours.get(key) if isinstance(ours, dict) else None
    if not isinstance(facts, dict):
        return {}
    return {name: fact for name, fact in facts.items() if isinstance(fact, kind)}


def _load_module(
    directory: pathlib.Path,
    name: str,
    description: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> Module:
    path = directory / f"{name}.bc"
    thinlto_index = None
    if description["has_thinlto"]:
        thinlto_index = directory / f"{name}.thinlto.bc"
        imported = directory / f"{name}.3.import.bc"
        if imported.is_file():
            path = imported
    for needed in (path, thinlto_index):
        if needed is not None and not needed.is_file():
            raise UserError(
                f"expected {needed}, named in {directory / DESCRIPTION_FILE}, found no such file; "
                "build the corpus again"
            )
    project, slash, _ = name.partition("/")
    return Module(
        name=name,
        path=path,
        project=project if slash else ".",
        language=str(facts.get("language") or language_of(name.removesuffix(".o"))),
        command=_load_command(directory / f"{name}.cmd", description),
        thinlto_index=thinlto_index,
    )


def _load_command(path: pathlib.Path, description: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cc1 options of a module: those of the whole corpus, or else the module's own."""
    override = description.get(COMMAND_KEY, [])
    if override and override != UNSPECIFIED_COMMAND:
        return tuple(override)
    try:
        text = files.read_bytes(path).decode("utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise UserError(
            f"expected options separated by NUL in {path}, found: {error}; build the corpus again"
        ) from None
    return tuple(option for option in text.split("\0") if option)


def _count(modules: Iterable[Module]) -> dict[str, Any]:
    modules = tuple(modules)
    languages = collections.Counter(module.language for module in modules)
    return {
        "modules": len(modules),
        "languages": dict(sorted(languages.items())),
        "size_bytes": sum(module.path.stat().st_size for module in modules),
    }
