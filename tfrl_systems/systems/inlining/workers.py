"""Collectors whose compilers run where `--collect` and `--workers` say."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from environments.inlining.collection.collector import Collector, ModulePlayer
from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.compilers.compiler import Compiler, make_compiler
from environments.inlining.corpus.modules import Corpus, Module
from environments.inlining.plugin.compiler import make_clang, why_no_plugins
from tfrl_systems.drivers.collect import Collect, Supervision, make_pool
from tfrl_systems.drivers.requirements import Files, Requirements, here
from tfrl_systems.reporting import Reporter

# Each compile has a time limit of its own, and exploring a module makes many compiles; this limit
# is for a worker that itself hangs.
_SUPERVISION = Supervision(timeout_s=24 * 3600.0)


def make_collector(
    compiler: str,
    store: TrajectoryStore,
    collect: Collect,
    requirements: Requirements = Requirements(),
) -> Collector:
    """Make a collector with a compiler in each worker.

    A worker that dies takes its compiler with it. Both are then replaced, and the module is tried
    again.

    Raises:
      UserError: there is no such compiler, or it does not work.
    """
    make: Callable[[str], Compiler] = make_compiler if compiler == "embedded" else make_clang
    return Collector(
        functools.partial(make, compiler),
        store,
        lambda make_player: make_pool(
            collect, functools.partial(PlayerHere, make_player), _SUPERVISION, requirements
        ),
    )


class PlayerHere:
    """A runner that plays modules where they lie on its machine."""

    def __init__(self, make_player: Callable[[], ModulePlayer]) -> None:
        self._player = make_player()
        self.load, self.close = self._player.load, self._player.close

    def run(self, job: Module) -> Any:
        """Do the task with a module; see `ModulePlayer.run`."""
        return self._player.run(at_hand(job))


def at_hand(module: Module) -> Module:
    """Return a module with the paths of its files on this machine."""
    index = module.thinlto_index
    return dataclasses.replace(module, path=here(module.path), thinlto_index=index and here(index))


def requirements_of(compiler: str, *corpora: Corpus | None) -> Requirements:
    """Return what a machine needs to compile the modules of some corpora."""
    required = []
    for corpus in filter(None, corpora):
        paths = [path for module in corpus.modules for path in (module.path, module.thinlto_index)]
        names = [str(path.relative_to(corpus.directory)) for path in paths if path is not None]
        required.append(Files(corpus.directory, tuple(names)))
    return Requirements(tuple(required), {compiler: functools.partial(_identity_of, compiler)})


def _identity_of(compiler: str) -> str:
    return make_compiler(compiler).identity


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
