"""Compilers where `--collect` and `--workers` say."""

from __future__ import annotations

import functools

from environments.inlining.collection.collector import Collector
from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.compilers.compilation import DEFAULT_TIMEOUT_S
from environments.inlining.compilers.compiler import make_compiler
from tfrl_systems.drivers.collect import Collect, Supervision, make_pool

# A compiler has a time limit for each compile, and exploring makes many: this is for a worker that
# hangs itself. A spare would start a compiler of its own, which is seldom needed.
_SUPERVISION = Supervision(timeout_s=24 * 3600.0, num_spares=0)


def make_collector(
    compiler: str,
    store: TrajectoryStore,
    collect: Collect,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Collector:
    """A collector with a compiler in each worker.

    A worker that dies takes its compiler with it; both are replaced, and the module tried again.

    Args:
      compiler: "embedded", or a clang.
      store: where compiles are kept.
      collect: where the compilers run, and how many.
      timeout_s: a compile that takes longer fails.

    Raises:
      UserError: there is no such compiler, or it does not work.
    """
    return Collector(
        functools.partial(make_compiler, compiler, timeout_s),
        store,
        lambda make_player: make_pool(collect, make_player, _SUPERVISION),
    )
