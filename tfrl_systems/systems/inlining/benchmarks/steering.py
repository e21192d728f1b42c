"""What compiles cost plainly and with a policy inside clang, huge functions among them."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from environments.errors import UserError
from environments.inlining.compilers.compilation import CompilerError
from environments.inlining.compilers.system_clang import SystemClang
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Policy
from environments.inlining.plugin.building import build_plugin
from environments.inlining.plugin.source import source_of
from environments.inlining.plugin.toolchain import find_toolchain
from tfrl_systems.cpu_time import cpu_s
from tfrl_systems.reporting import Reporter
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


def take_turns(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the CPU time of each way of compiling in each round, in s."""
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, compile_fn in ways.items():
            began_s = cpu_s()
            compile_fn()
            taken[way].append(cpu_s() - began_s)
    return taken


def plugin_option(clang: SystemClang, policy: Policy, reporter: Reporter) -> str | None:
    """Return the option that puts a policy inside clang; if there is none, say why."""
    try:
        plugin = build_plugin(find_toolchain(clang.executable), source_of(policy))
    except UserError as error:
        reporter.say(f"left out: steered_build_cpu_over_plain: {error}")
        return None
    return f"-fpass-plugin={plugin}"


def measure_decisions(clang: SystemClang, option: str, modules: Sequence[Module]) -> dict[str, Any]:
    """Return what a decision inside clang takes; the plugin times those of some compiles."""
    with tempfile.TemporaryDirectory(prefix="tfrl-bench-") as scratch:
        log = pathlib.Path(scratch) / "log"
        for module in modules:
            compile_plainly(clang, module, (option,), {"TFRL_INLINING_LOG": os.fspath(log)})
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    records = [json.loads(line) for line in lines]
    decisions = sum(record.get("decisions", 0) for record in records)
    spent_us = sum(record.get("policy_ns", 0) for record in records) / 1e3
    return {"name": "plugin_us_per_decision", "value": spent_us / max(decisions, 1), "unit": "us"}


def compile_plainly(
    clang: SystemClang,
    module: Module,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run clang as a build system does, without any code of this project around it.

    Raises:
      CompilerError: clang fails.
    """
    with tempfile.NamedTemporaryFile(prefix="tfrl-", suffix=".o") as output:
        command = [*clang.command(module)[:-1], output.name]
        command[2:2] = options  # After -cc1, which must come first.
        done = subprocess.run(
            command, capture_output=True, check=False, env={**os.environ, **(environment or {})}
        )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines() or ["no message"]
        raise CompilerError(f"{module.name}: expected an object, found: {lines[0]}")


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
