"""A project of a library and a program, for builds with a policy inside."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

from environments.errors import UserError
from environments.inlining.plugin.toolchain import find_toolchain
from tests.requirements import missing_programs, skip_if

SHAPE = """\
inline int twice(int x) { return 2 * x; }
template <class T> T clamp(T x, T low, T high) { return x < low ? low : x > high ? high : x; }
struct Sum {
  int total = 0;
  void add(int x) { total += clamp(twice(x), 0, 100); }
};
"""
# twice is as small as the call: LLVM inlines it at -Oz. `never` does not.
LIBRARY = (
    '#include "shape.h"\nint measure%d(int n) { Sum s; s.add(n); s.add(%d); return s.total; }\n'
)
MAIN = """\
int measure0(int);
int measure1(int);
int main() { return measure0(3) + measure1(4) == 6 + 0 + 8 + 2 ? 0 : 1; }
"""
# Spaces are in the paths on purpose.
CMAKE = """\
cmake_minimum_required(VERSION 3.10)
project(shapes CXX)
add_library(shapes SHARED "library 0.cpp" "library 1.cpp")
add_executable(program main.cpp)
target_link_libraries(program shapes)
"""
MAKE = """\
OBJECTS = one.o two.o main.o
program: $(OBJECTS)
\t$(CXX) $(OBJECTS) -o $@
one.o: library\\ 0.cpp
\t$(CXX) $(CXXFLAGS) -c "library 0.cpp" -o $@
two.o: library\\ 1.cpp
\t$(CXX) $(CXXFLAGS) -c "library 1.cpp" -o $@
main.o: main.cpp
\t$(CXX) $(CXXFLAGS) -c main.cpp -o $@
"""
CLANGS = ("clang++-19", "clang++-22")


def find_clang(name: str) -> tuple[str, str]:
    """Return the path of a clang that can be steered; else "" and what is missing."""
    path = shutil.which(name)
    if path is None:
        return "", missing_programs(name)
    try:
        find_toolchain(path.replace("++", ""))
    except UserError as error:
        return "", str(error)
    return path, ""


def need_any_clang() -> str:
    """Return the path of a clang that can be steered, the newest one; skip the test if none is."""
    candidates = [find_clang(name) for name in reversed(CLANGS)]
    path = next((path for path, _ in candidates if path), "")
    if not path:
        skip_if("; ".join(missing for _, missing in candidates))
    return path


def write_sources(directory: pathlib.Path) -> pathlib.Path:
    directory.mkdir()
    (directory / "shape.h").write_text(SHAPE)
    for number in range(2):
        (directory / f"library {number}.cpp").write_text(LIBRARY % (number, number))
    (directory / "main.cpp").write_text(MAIN)
    (directory / "CMakeLists.txt").write_text(CMAKE)
    (directory / "Makefile").write_text(MAKE)
    return directory


def run(*command: object, cwd: pathlib.Path, **keywords) -> str:
    """Runs a command that must succeed; returns what it says."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=300, **keywords)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def objects(directory: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.rglob("*.o")}


def fake_clang(path: pathlib.Path, real: object, version: str = "27.1.0") -> pathlib.Path:
    """A clang that calls itself another version, and compiles by the real one."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "clang version {version}" && exit\n'
        f'exec {real} "$@"\n'
    )
    path.chmod(0o755)
    return path
