"""Find the clangs that a build may call."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import string
import subprocess
from collections.abc import Iterator, Sequence

from environments.inlining.plugin.toolchain import MINIMUM_VERSION

_ON_PATH = ("cc", "c++", "clang", "clang++")
_NEWEST = 30
_CACHED_COMPILER = re.compile(r"^CMAKE_(?:C|CXX)_COMPILER:[A-Z]+=(.+)$", re.MULTILINE)
# The end of the path of a clang.
_CLANG = re.compile(r"clang(?:\+\+)?(?:-\d{1,3})?(?![\w.+/-])")
_PATH_CHARACTERS = f"{string.ascii_letters}{string.digits}/._+@-"
_LONGEST_PATH = 500
_SETTING = re.compile(
    r"(?:-D)?(?:CMAKE_)?(?:CC|CXX|C_COMPILER|CXX_COMPILER)(?::\w+)?=(.+)", re.DOTALL
)
_BUILD_FILES = (
    *("CMakeCache.txt", "build.ninja", "Makefile", "makefile", "GNUmakefile", "config.mk"),
    *("config.status", "compile_commands.json", "SConstruct"),
)
_MOST_BYTES = 8_000_000
_MOST_DIRECTORIES = 200
_MOST_PROGRAMS = 64
_VERSION = re.compile(r"clang version (\d{1,6})")
_TIMEOUT_S = 30.0


def find_clangs(names: Sequence[str]) -> dict[str, int]:
    """Return the major version of each path, or name on PATH, of a clang; each program once."""
    majors: dict[str, int] = {}
    programs = set()
    for name in names:
        path = shutil.which(name)
        if path is None or (program := os.path.realpath(path)) in programs:
            continue
        programs.add(program)
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            shown = subprocess.run(
                [path, "--version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
            ).stdout.decode(errors="replace")
            if match := _VERSION.search(shown):
                majors[path] = int(match[1])
    return majors


def candidates(roots: Sequence[pathlib.Path], command: Sequence[str]) -> list[str]:
    """Return compilers that a build may call which writes to `roots`, the likeliest first."""
    settings = [f"{name}={os.environ.get(name, '')}" for name in ("CC", "CXX")]
    names = [name for text in (*settings, *command) for name in _named_in(text)]
    for root in roots:
        for path in _build_files(root):
            with contextlib.suppress(OSError), path.open("rb") as file:
                text = file.read(_MOST_BYTES).decode(errors="replace")
                names += [*_CACHED_COMPILER.findall(text), *_clangs_in(text)]
    on_path = [*_ON_PATH, *(f"clang-{major}" for major in range(MINIMUM_VERSION, _NEWEST + 1))]
    return list(dict.fromkeys([*list(dict.fromkeys(names))[:_MOST_PROGRAMS], *on_path]))


def _clangs_in(text: str) -> Iterator[str]:
    """Yield the paths and names of clangs that a text contains."""
    for match in _CLANG.finditer(text):
        before = text[max(0, match.start() - _LONGEST_PATH) : match.start()]
        yield before[len(before.rstrip(_PATH_CHARACTERS)) :] + match[0]


def _named_in(text: str) -> Iterator[str]:
    """Yield the compilers that a word of a command or a variable names.

    Each will be started, so a program that only might be a compiler is none.
    """
    if match := _SETTING.fullmatch(text):
        try:
            yield from shlex.split(match[1])[:1]
        except ValueError:
            yield from match[1].split()[:1]
    yield from _clangs_in(text)


def _build_files(root: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the files of build systems in a directory and in those right below it."""
    directories = [root]
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        folders = sorted(entry.path for entry in entries if _is_directory(entry))
        directories += map(pathlib.Path, folders[:_MOST_DIRECTORIES])
    for directory in directories:
        for name in _BUILD_FILES:
            path = directory / name
            if path.is_file():
                yield path


def _is_directory(entry: os.DirEntry) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
