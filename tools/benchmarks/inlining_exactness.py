"""Check that steering the compiler is exact, by comparing object sizes that must be equal.

    python tools/benchmarks/inlining_exactness.py --corpus runs/corpus/all --compiler embedded

For each module of a corpus, the tool compares two pairs of objects:

  - one compiled under the default's decisions, and one compiled by a plain -Oz;
  - one compiled with every tenth of those decisions changed, and a replay of its record.

It prints one JSON object, and exits with 1 if the objects of a pair differ or a module fails. The
first pair can differ if inlining left call sites in unreachable code (see `CompilePlainly`). That
is why savings are measured against the plain -Oz.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

from environments.errors import Failure
from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.collection.tasks import ModuleStore, Play
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.corpus.modules import Corpus, Module
from environments.inlining.heuristics import Replay, make_heuristic
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.experiments.reporting import Terminal
from tfrl_systems.experiments.systems.inlining.workers import make_collector


class Check:
    """A `tasks.Task` that compiles one module four ways, and keeps nothing in the store."""

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
        }

    def keep(self, module_store: ModuleStore, result: dict[str, bool | int]) -> None:
        """Keep nothing."""


def main() -> int:
    """Run the check; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", default="embedded", metavar="embedded|CLANG")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--max-bitcode-bytes", type=int, metavar="N", help="leave out larger modules, to save time"
    )
    options = parser.parse_args()
    collect = Collect.with_workers(options.workers)
    modules = [
        module
        for module in Corpus.load(options.corpus).modules
        if not options.max_bitcode_bytes or module.path.stat().st_size <= options.max_bitcode_bytes
    ]
    with (
        Terminal() as terminal,
        make_collector(options.compiler, TrajectoryStore(), collect) as collector,
    ):
        results = collector.map(Check(), modules, terminal.task(options.compiler, len(modules)))
    done = [one for one in results if not isinstance(one, Failure)]
    differing = [
        module.name
        for module, one in zip(modules, results, strict=True)
        if not isinstance(one, Failure)
        and not (one["default_is_plain"] and one["replay_is_recorded"])
    ]
    found = {
        "compiler": options.compiler,
        "modules": len(modules),
        "decisions": sum(int(one["decisions"]) for one in done),
        "default_is_plain": sum(one["default_is_plain"] for one in done),
        "replay_is_recorded": sum(one["replay_is_recorded"] for one in done),
        "differing": differing,
        "failures": [one.message for one in results if isinstance(one, Failure)],
    }
    print(json.dumps(found, indent=2))
    return int(bool(differing or found["failures"]))


if __name__ == "__main__":
    sys.exit(main())
