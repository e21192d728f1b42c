"""Find what a plugin is built with: the headers of a clang's own LLVM, and a C++ compiler."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil

from environments.errors import UserError
from environments.inlining.compilers.clang_probe import ClangFacts, probe_clang

MINIMUM_VERSION = 19
"""The first LLVM whose advisors the plugin's source fits."""

_CONFIG = pathlib.Path("llvm/Config/llvm-config.h")
_NEEDED = pathlib.Path("llvm/Analysis/MLInlineAdvisor.h")
_MAJOR = re.compile(r"#define\s+LLVM_VERSION_MAJOR\s+(\d+)")
_COMPILERS = ("clang++", "c++", "g++")


@dataclasses.dataclass(frozen=True)
class Toolchain:
    """What a plugin for one clang is built with.

    Attributes:
      clang: path of the clang that will load the plugin.
      facts: what was found out about it.
      include: directory of its LLVM's headers.
      compiler: path of the C++ compiler that builds the plugin.
    """

    clang: str
    facts: ClangFacts
    include: pathlib.Path
    compiler: str

    @property
    def major(self) -> int:
        """The major version of LLVM."""
        return self.facts.major


def find_toolchain(clang: str | os.PathLike) -> Toolchain:
    """Find what a plugin for `clang`, a path or a name on PATH, is built with.

    Raises:
      UserError: it is not a clang that can be steered, or its headers or a compiler are missing;
        the message names the package to install.
    """
    path = shutil.which(os.fspath(clang))
    if path is None:
        raise UserError(
            f"plugin: expected a clang of LLVM {MINIMUM_VERSION} or newer, found no program "
            f"{os.fspath(clang)!r}; name one by --compiler"
        )
    facts = probe_clang(path)
    major = facts.major
    if major < MINIMUM_VERSION:
        raise UserError(
            f"plugin: expected clang {MINIMUM_VERSION} or newer, found {path} of version "
            f"{facts.version}; name a newer one by --compiler"
        )
    include = _find_headers(path, major)
    return Toolchain(path, facts, include, _find_compiler(path, major))


def _find_headers(clang: str, major: int) -> pathlib.Path:
    prefix = pathlib.Path(clang).resolve().parent.parent
    places = (
        prefix / "include",
        pathlib.Path(f"/usr/lib/llvm-{major}/include"),
        pathlib.Path(f"/usr/lib64/llvm{major}/include"),
        pathlib.Path("/usr/include"),
    )
    others = []
    for place in places:
        version = _version_of(place)
        if version == major and (place / _NEEDED).is_file():
            return place
        if version not in (None, major):
            others.append(f"those of LLVM {version} in {place}")
    raise UserError(
        f"plugin: expected the headers of LLVM {major}, which {clang} needs, found "
        f"{' and '.join(others) or 'none'}; install them: apt-get install llvm-{major}-dev"
    )


def _version_of(include: pathlib.Path) -> int | None:
    try:
        match = _MAJOR.search((include / _CONFIG).read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return int(match[1]) if match else None


def _find_compiler(clang: str, major: int) -> str:
    # Clang's own C++ compiler certainly reads the headers of its LLVM.
    own = pathlib.Path(clang).resolve().parent / "clang++"
    for name in (os.fspath(own), f"clang++-{major}", *_COMPILERS):
        if path := shutil.which(name):
            return path
    raise UserError(
        "plugin: expected a C++ compiler to build it with, found none on PATH; install one: "
        "apt-get install g++"
    )
