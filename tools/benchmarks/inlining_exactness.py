"""Check that steering the compiler is exact, by comparing object sizes that must be equal.

    python tools/benchmarks/inlining_exactness.py --corpus runs/corpus/all --compiler embedded

For each module of a corpus, the tool compares pairs of objects:

  - one compiled under the default's decisions, and one compiled by a plain -Oz;
  - one compiled with every tenth of those decisions changed, and a replay of its record;
  - if plugins can be built for the compiler, one compiled with --policy inside it, and one steered
    by its channel. Features and decisions of all call sites must be equal too.

It prints one JSON object, and exits with 1 if a pair differs or a module fails. The first pair can
differ if inlining left call sites in unreachable code (see `CompilePlainly`). That
is why savings are measured against the plain -Oz.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys

import numpy as np

from environments.errors import Failure
from environments.inlining.collection.playing import compile_by_channel, compile_under
from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.collection.tasks import ModuleStore, Play
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.corpus.modules import Corpus, Module
from environments.inlining.heuristics import Policy, Replay, make_heuristic
from environments.inlining.plugin.compiler import PluginClang
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.reporting import Terminal
from tfrl_systems.systems.inlining.policies import load_policy
from tfrl_systems.systems.inlining.workers import make_collector

_PAIRS = ("default_is_plain", "replay_is_recorded", "plugin_is_channel")


@dataclasses.dataclass(frozen=True)
class Check:
    """A `tasks.Task` that compiles one module in several ways, and keeps nothing in the store.

    Attributes:
      policy: decides in the last pair.
    """

    policy: Policy

    def recall(self, module_store: ModuleStore) -> None:
        """Return None, because nothing is kept."""

    def run(self, compiler: Compiler, module: Module) -> dict[str, bool | int]:
        """Return the number of decisions, and whether the sizes of each pair are equal."""
        default = Play(make_heuristic("default")).run(compiler, module)
        plain = compiler.compile_plain(module).size
        # Random decisions at all call sites would make the largest modules compile for hours.
        changed = default.decisions.copy()
        changed[::10] ^= 1
        recorded = Play(Replay(changed)).run(compiler, module)
        replayed = Play(Replay(recorded.decisions)).run(compiler, module)
        return {
            "decisions": len(default.decisions),
            "default_is_plain": default.size == plain,
            "replay_is_recorded": replayed.size == recorded.size,
            "plugin_is_channel": self._plugin_is_channel(compiler, module),
        }

    def _plugin_is_channel(self, compiler: Compiler, module: Module) -> bool:
        if not isinstance(compiler, PluginClang):
            return True
        inside = compile_under(self.policy, compiler, module)
        asked = compile_by_channel(self.policy, compiler, module)
        return (
            np.array_equal(inside.features, asked.features)
            and np.array_equal(inside.decisions, asked.decisions)
            and inside.data == asked.data
        )

    def keep(self, module_store: ModuleStore, result: dict[str, bool | int]) -> None:
        """Keep nothing."""


def main() -> int:
    """Run the check; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", default="embedded", metavar="embedded|CLANG")
    parser.add_argument("--policy", default="cost<-20", help="a policy's directory or name")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--max-bitcode-bytes", type=int, metavar="N", help="leave out larger modules, to save time"
    )
    parser.add_argument("--modules", type=int, metavar="N", help="the first N only")
    options = parser.parse_args()
    collect = Collect.with_workers(options.workers)
    modules = [
        module
        for module in Corpus.load(options.corpus).modules
        if not options.max_bitcode_bytes or module.path.stat().st_size <= options.max_bitcode_bytes
    ][: options.modules]
    with (
        Terminal() as terminal,
        make_collector(options.compiler, TrajectoryStore(), collect) as collector,
    ):
        check = Check(load_policy(options.policy))
        results = collector.map(check, modules, terminal.task(options.compiler, len(modules)))
    done = [one for one in results if not isinstance(one, Failure)]
    differing = [
        module.name
        for module, one in zip(modules, results, strict=True)
        if not isinstance(one, Failure) and not all(one[pair] for pair in _PAIRS)
    ]
    found = {
        "compiler": options.compiler,
        "modules": len(modules),
        "decisions": sum(int(one["decisions"]) for one in done),
        **{pair: sum(one[pair] for one in done) for pair in _PAIRS},
        "differing": differing,
        "failures": [one.message for one in results if isinstance(one, Failure)],
    }
    print(json.dumps(found, indent=2))
    return int(bool(differing or found["failures"]))


if __name__ == "__main__":
    sys.exit(main())
