"""What steering costs where one function has thousands of calls, as in generated sources."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.inlining.benchmarks.plugin import take_turns
from tfrl_systems.systems.inlining.building.steered_build import Build, build

_NUM_SMALL = 300
_MAX_ROUNDS = 3
_HEADER = """\
#include <map>
#include <string>
struct Table {
  std::map<std::string, int> cells;
  void put(const char* key, int value) { cells[key] = value; }
};
"""


def huge_source(calls: int) -> str:
    """Return a C++ source whose function `fill` makes at least so many calls."""
    small = [
        f"static inline int f{k}(int x) {{ return (x * {k + 3}) ^ (x >> {k % 7 + 1}); }}"
        for k in range(_NUM_SMALL)
    ]
    lines = [
        f't.put("k{k}", f{k % _NUM_SMALL}(x + {k})); s += f{k * 7 % _NUM_SMALL}(s);'
        for k in range(-(-calls // 3))
    ]
    parts = [_HEADER, *small, "int fill(Table& t, int x) { int s = 0;", *lines, "return s; }\n"]
    return "\n".join(parts)


def measure_huge_functions(
    clang: str, option: str, calls: int, rounds: int, reporter: Reporter
) -> list[dict[str, Any]]:
    """Compile functions of an eighth of `calls`, of half and of all; return what that costs.

    `option` puts the policy inside the clang. Of the rounds the fastest counts.
    """
    benchmarks: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="tfrl-bench-") as scratch, contextlib.chdir(scratch):
        for size in sorted({max(1, calls // 8), max(1, calls // 2), calls}):
            pathlib.Path("huge.cpp").write_text(huge_source(size), encoding="utf-8")
            command = [clang, "-x", "c++", "-Oz", "-c", "huge.cpp", "-o", "huge.o"]
            ways = {
                "plain": functools.partial(_run, command),
                "": functools.partial(_run, [*command, option]),
                "_default": functools.partial(_build, command, clang, reporter),
            }
            try:
                taken = take_turns(ways, min(rounds, _MAX_ROUNDS))
            except subprocess.CalledProcessError as error:
                reporter.say(f"left out: huge_function: expected an object, found: {error}")
                return benchmarks
            # Other work on the machine only adds to the time.
            least = {way: min(seconds) for way, seconds in taken.items()}
            benchmarks += [
                {
                    "name": f"huge_function{way}_cpu_over_plain_{size}",
                    "ratio": least[way] / least["plain"],
                    "against": f"{pathlib.Path(clang).name} -Oz -c",
                }
                for way in ("", "_default")
            ]
    return benchmarks


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, capture_output=True, check=True)


def _build(command: Sequence[str], clang: str, reporter: Reporter) -> None:
    """Build as `tfrl build` does; all that it does around the command counts."""
    steered = Build(command, "default", compilers=(clang,), quiet=True)
    if status := build(steered, reporter)["status"]:
        raise subprocess.CalledProcessError(status, command)
