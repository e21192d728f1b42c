"""Collectors whose compilers run where `--collect` and `--workers` say."""

from __future__ import annotations

import functools

from environments.inlining.collection.collector import Collector
from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.compilers.compilation import DEFAULT_TIMEOUT_S
from environments.inlining.compilers.compiler import Compiler, make_compiler
from environments.inlining.plugin.compiler import make_clang, why_no_plugins
from tfrl_systems.drivers.collect import Collect, Supervision, make_pool
from tfrl_systems.experiments.reporting import Reporter

# Each compile has a time limit of its own, and exploring a module makes many compiles; this limit
# is for a worker that itself hangs. There are no spares, because each would start a compiler that
# is seldom needed.
_SUPERVISION = Supervision(timeout_s=24 * 3600.0, num_spares=0)


def make_collector(
    compiler: str,
    store: TrajectoryStore,
    collect: Collect,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Collector:
    """Make a collector with a compiler in each worker.

    A worker that dies takes its compiler with it. Both are then replaced, and the module is tried
    again.

    Args:
      compiler: "embedded", or a clang.
      store: keeps the compiles.
      collect: where the compilers run, and how many there are.
      timeout_s: seconds after which a compile fails.

    Raises:
      UserError: there is no such compiler, or it does not work.
    """
    return Collector(
        functools.partial(_make_compiler, compiler, timeout_s),
        store,
        lambda make_player: make_pool(collect, make_player, _SUPERVISION),
    )


def _make_compiler(name: str, timeout_s: float) -> Compiler:
    return make_compiler(name, timeout_s) if name == "embedded" else make_clang(name, timeout_s)


def say_how_it_is_steered(compiler: str, reporter: Reporter) -> None:
    """Say whether the policies run inside a clang, and if not, how to get there."""
    if compiler == "embedded":
        return
    if reason := why_no_plugins(compiler):
        reporter.say(
            f"{compiler} is asked at each call site, which takes it a third longer than a policy "
            f"inside: {reason}"
        )
    else:
        reporter.say(f"{compiler} has the policies inside, as plugins")
