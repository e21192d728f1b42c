"""What a plain compile costs, and one with the policy inside clang."""

from __future__ import annotations

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
