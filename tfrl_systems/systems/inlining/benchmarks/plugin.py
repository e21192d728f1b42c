"""What a plain compile costs, and one with the policy inside clang."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from environments.errors import UserError
from environments.inlining.compilers.compilation import CompilerError
from environments.inlining.compilers.system_clang import SystemClang
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Policy
from environments.inlining.plugin.building import build_plugin
from environments.inlining.plugin.source import source_of
from environments.inlining.plugin.toolchain import find_toolchain
from tfrl_systems.reporting import Reporter


@dataclasses.dataclass(frozen=True)
class Costs:
    """CPU time of compiling some modules in several ways.

    Attributes:
      cpu_s: for each way of compiling, the CPU time of each module in seconds, as the median over
        the rounds.
      decisions: number of call sites in all modules together.
    """

    cpu_s: Mapping[str, list[float]]
    decisions: int

    def ratio(self, way: str, against: str) -> float:
        """Return the CPU time of all modules, divided by that of another way of compiling."""
        return sum(self.cpu_s[way]) / sum(self.cpu_s[against])

    def median_ratio(self, way: str, against: str) -> float:
        """Return the median over the modules of each module's ratio of CPU times."""
        pairs = zip(self.cpu_s[way], self.cpu_s[against], strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)


class Steered:
    """Clang with a policy inside.

    Args:
      clang: the clang.
      plugin: the pass plugin that was built for it.

    Attributes:
      option: the option that puts the policy inside.
    """

    def __init__(self, clang: SystemClang, plugin: pathlib.Path) -> None:
        self._clang = clang
        self.option = f"-fpass-plugin={plugin}"
        self._modules: dict[str, Module] = {}

    def compile(self, module: Module) -> None:
        """Compile a module as a steered build does.

        Raises:
          CompilerError: clang fails.
        """
        self._modules[module.name] = module
        compile_plainly(self._clang, module, (self.option,))

    def benchmarks(self, costs: Costs, clang: SystemClang) -> list[dict[str, Any]]:
        """Return what steering costs; the plugin times its decisions in compiles of their own."""
        with tempfile.TemporaryDirectory(prefix="tfrl-bench-") as scratch:
            log = pathlib.Path(scratch) / "log"
            for module in self._modules.values():
                options, environment = (self.option,), {"TFRL_INLINING_LOG": os.fspath(log)}
                compile_plainly(self._clang, module, options, environment)
            lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        records = [json.loads(line) for line in lines]
        decisions = sum(record.get("decisions", 0) for record in records)
        spent_ns = sum(record.get("policy_ns", 0) for record in records)
        against = f"{clang.name} -Oz -c"
        ratio = costs.ratio("steered", "plain")
        return [
            {"name": "steered_build_cpu_over_plain", "ratio": ratio, "against": against},
            {
                "name": "plugin_us_per_decision",
                "value": spent_ns / 1e3 / max(decisions, 1),
                "unit": "us",
            },
        ]


def make_steered(clang: SystemClang, policy: Policy, reporter: Reporter) -> Steered | None:
    """Build the plugin; if that cannot be done, report why and return None."""
    try:
        plugin = build_plugin(find_toolchain(clang.executable), source_of(policy))
    except UserError as error:
        reporter.say(f"left out: steered_build_cpu_over_plain: {error}")
        return None
    return Steered(clang, plugin)


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
