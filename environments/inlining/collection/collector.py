"""Do a task with many modules, on several compilers at once, compiling nothing twice.

The collector runs in the caller's process and holds the store. It takes from the store what is
already there and sends only the other modules to the compilers. It stores each result as soon as
that arrives, so an interruption loses no finished work. The `Pool` that the caller makes decides
where the compilers run: in this process or in others.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from environments.errors import Failure, UserError
from environments.inlining.collection.store import ModuleStore, Trajectory, TrajectoryStore
from environments.inlining.collection.tasks import CompilePlainly, Play, Task
from environments.inlining.compilers.compilation import CompilerError
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Default, Policy

Result = TypeVar("Result")

_MAX_ATTEMPTS = 2


class ModulePlayer:
    """A runner that does a task with one module after another; each worker of a pool holds one.

    It has a compiler of its own, which must work at once. If the compiler fails, dies or hangs, the
    player tries the module once more.

    Raises:
      UserError: the compiler does not exist or does not work.
    """

    def __init__(self, make_compiler: Callable[[], Compiler]) -> None:
        self._compiler = make_compiler()
        assert self._compiler.announced
        self._task: Task[Any] | None = None

    def load(self, task: Task[Any]) -> None:
        """Set the task to do with the modules that follow."""
        self._task = task

    def run(self, module: Module) -> Any:
        """Return the task's result: a `Failure` if the compiler failed twice, else a `UserError`.

        The `UserError` says why the task can be done with no module.
        """
        assert self._task is not None
        try:
            for _ in range(_MAX_ATTEMPTS):
                try:
                    return self._task.run(self._compiler, module)
                except CompilerError as error:
                    message = str(error)
        except UserError as error:
            return UserError(str(error))
        return Failure(module.name, message)

    def close(self) -> None:
        """End the compiler's process."""
        self._compiler.close()


class Pool(Protocol):
    """Module players that work at the same time; `tfrl_systems.drivers` implements such pools."""

    def broadcast(self, data: Task[Any]) -> None:
        """Make every player load a task."""

    def map(self, jobs: Sequence[Module], on_result: Callable[[int, Any], None]) -> object:
        """Run all modules; `on_result` gets the place and result of each, and may end the call."""

    def close(self) -> None:
        """End the players, including those that are at work."""


MakePool = Callable[[Callable[[], ModulePlayer]], Pool]
"""(makes a player; can be pickled if `make_compiler` can) -> a pool of such players."""


class Collector:
    """Does tasks with many modules.

    The results do not depend on the pool: compiles are deterministic, and results keep the order of
    the modules.

    Args:
      make_compiler: makes a compiler; each player calls it.
      store: where compiles are kept.
      make_pool: makes the pool of players; called when the store lacks a result for the first time.

    Attributes:
      compiler: a compiler equal to those of the players, to ask for its identity and features.

    Raises:
      UserError: the compiler does not exist or does not work.
    """

    def __init__(
        self,
        make_compiler: Callable[[], Compiler],
        store: TrajectoryStore,
        make_pool: MakePool,
    ) -> None:
        self.compiler = make_compiler()
        assert self.compiler.announced
        self.compiler.close()  # Its identity and feature names stay known.
        self.store = store
        self._make_compiler = make_compiler
        self._make_pool = make_pool
        self._pool: Pool | None = None

    def play(
        self,
        modules: Sequence[Module],
        policy: Policy,
        progress: Callable[[int], None] | None = None,
    ) -> list[Trajectory | Failure]:
        """Play one episode with each module, its call sites decided by a policy; see `map`."""
        return self.map(Play(policy), modules, progress)

    def play_default(
        self, modules: Sequence[Module], progress: Callable[[int], None] | None = None
    ) -> list[Trajectory | Failure]:
        """Play LLVM's own decisions in each module; take the sizes from plain compiles.

        Policies are measured against these sizes; see `CompilePlainly`.
        """
        outcomes = self.play(modules, Default(), progress)
        compiled = {
            k: played for k, played in enumerate(outcomes) if isinstance(played, Trajectory)
        }
        sizes = self.map(CompilePlainly(), [modules[k] for k in compiled])
        for (k, played), size in zip(compiled.items(), sizes, strict=True):
            if isinstance(size, Failure):
                outcomes[k] = size
            else:
                outcomes[k] = dataclasses.replace(played, size=size)
        return outcomes

    def map(
        self,
        task: Task[Result],
        modules: Sequence[Module],
        progress: Callable[[int], None] | None = None,
    ) -> list[Result | Failure]:
        """Do a task with each module, calling `progress` with 1 after it.

        Returns:
          One result or `Failure` for each module, in the order of `modules`.

        Raises:
          UserError: the task cannot be done with any module.
        """
        results: list[Any] = [None] * len(modules)
        module_stores: dict[int, ModuleStore] = {}

        def take(number: int, result: Any) -> None:
            results[number] = result
            if progress is not None:
                progress(1)

        for number, module in enumerate(modules):
            try:
                module_store = ModuleStore.of(self.store, self.compiler, module)
            except CompilerError as error:
                take(number, Failure(module.name, str(error)))
                continue
            result = task.recall(module_store)
            if result is None:
                module_stores[number] = module_store
            else:
                take(number, result)
        missing = list(module_stores)

        def keep(place: int, result: Any) -> None:
            if isinstance(result, UserError):
                raise result
            if not isinstance(result, Failure):
                task.keep(module_stores[missing[place]], result)
            take(missing[place], result)

        if missing:
            if self._pool is None:
                self._pool = self._make_pool(functools.partial(ModulePlayer, self._make_compiler))
            self._pool.broadcast(task)
            self._pool.map([modules[number] for number in missing], keep)
        return results

    def close(self) -> None:
        """End the compilers; the collector may be used again."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self.compiler.close()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
