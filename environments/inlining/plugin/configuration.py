"""Configuration files by which a clang loads the plugin, and by which no other program fails.

From LLVM 16 on every clang looks for default configuration files, in three directories. If `tfrl
build` names the first of these, a clang that finds a file there adds the options in it. All else
goes on as before: a user or a name space that cannot read the directory, an older clang, clang-cl,
zig's clang (which asks for no default configuration) and other programs. Clang does not warn about
an option in such a file that it does not use.

A file of ours hides one of the same name in the other two directories, and clang reads
TRIPLE-clang.cfg in place of clang.cfg. So where a clang of this machine reads files of its own,
ours are made for its target alone and include them.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import subprocess
from collections.abc import Collection, Mapping

LIBRARY = "steer.so"
"""The library that a clang loads; see steer.c."""

_OPTION = f"-fpass-plugin=<CFGDIR>/{LIBRARY}\n"
# The names of configuration files by the driver's mode.
_MODES = {"gcc": "clang", "g++": "clang++"}
# With --driver-mode, clang would read clang.cfg for these, which do not know the option.
_WITHOUT_PLUGINS = ("clang-cl.cfg", "clang-dxc.cfg")
_TRIPLE = re.compile(r"^Target: (\S+)$", re.MULTILINE)
_FILE = re.compile(r"^Configuration file: (.+)$", re.MULTILINE)
_USER_DIRECTORY = re.compile(r"^User configuration file directory: (.+)$", re.MULTILINE)
_TIMEOUT_S = 30.0


@dataclasses.dataclass(frozen=True)
class Defaults:
    """What a clang reads without being asked to.

    Attributes:
      triple: the target that it compiles for.
      files: its configuration files, in order, for each kind of driver ("clang", "clang++").
      user_directory: the directory in whose place ours is searched; "" for none.
    """

    triple: str
    files: Mapping[str, tuple[str, ...]]
    user_directory: str

    @property
    def is_empty(self) -> bool:
        """Whether it reads nothing."""
        return not self.user_directory and not any(self.files.values())


def read_defaults(clang: str) -> Defaults:
    """Ask a clang for its target and its default configuration files."""
    texts = {name: _verbose(clang, mode) for mode, name in _MODES.items()}
    text = texts["clang"]
    triple, directory = _TRIPLE.search(text), _USER_DIRECTORY.search(text)
    return Defaults(
        triple[1] if triple else "",
        {name: tuple(_FILE.findall(text)) for name, text in texts.items()},
        directory[1] if directory and pathlib.Path(directory[1]).is_dir() else "",
    )


def _verbose(clang: str, mode: str) -> str:
    try:
        done = subprocess.run(
            [clang, f"--driver-mode={mode}", "-v"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).decode(errors="replace")


def configuration_texts(
    defaults: Mapping[str, Defaults], refusing: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """Return the files by which clangs load the library that lies beside them.

    Args:
      defaults: what each clang of this machine reads, by the clang's path.
      refusing: those of them that fail with a plugin.

    Returns:
      The texts by their file's name, and why some of the clangs load nothing.
    """
    if not refusing and all(files.is_empty for files in defaults.values()):
        texts = {f"{name}.cfg": _OPTION for name in _MODES.values()}
        return texts | dict.fromkeys(_WITHOUT_PLUGINS, "# It takes no plugins.\n"), []
    texts, failures = {}, []
    for triple in sorted({files.triple for files in defaults.values()} - {""}):
        clangs = [clang for clang, files in defaults.items() if files.triple == triple]
        if failure := _why_not(clangs, defaults, refusing):
            failures.append(failure)
            continue
        for name, paths in defaults[clangs[0]].files.items():
            texts[f"{triple}-{name}.cfg"] = "".join(map(_include, paths)) + _OPTION
    for directory in sorted({files.user_directory for files in defaults.values()} - {""}):
        for path in sorted(pathlib.Path(directory).glob("*.cfg")):
            texts.setdefault(path.name, _include(os.fspath(path)))
    return texts, failures


def _why_not(clangs: list[str], defaults: Mapping[str, Defaults], refusing: Collection[str]) -> str:
    """Return why the clangs of one target load nothing; "" if they do."""
    triple = defaults[clangs[0]].triple
    barred = [clang for clang in clangs if clang in refusing]
    if barred:
        return f"no clang for {triple} is steered: {barred[0]} takes no plugins"
    for clang in clangs[1:]:
        if defaults[clang].files != defaults[clangs[0]].files:
            return (
                f"no clang for {triple} is steered: {clangs[0]} and {clang} read different "
                "configuration files"
            )
    return ""


def _include(path: str) -> str:
    return "@" + re.sub(r"([\\\s])", r"\\\1", path) + "\n"
