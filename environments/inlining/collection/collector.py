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
from environments.inlining.compilers.object_size import ObjectSize
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Default, Policy

Result = TypeVar("Result")

_MAX_ATTEMPTS = 2


class ModulePlayer:
    """A runner that does a task with one module after another; each worker of a pool holds one.

    It has a compiler of its own. If the compiler fails, dies or hangs, the player tries the module
    once more; the compiler starts a new process if its old one has ended.

    Args:
      make_compiler: makes the compiler. The constructor checks at once that the compiler works.

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
        """Return the task's result for a module.

        Returns:
          A `Failure` if the compiler failed twice, a `UserError` if no module can be done.
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


OnResult = Callable[[int, Any], None]
"""(number of the module, the task's result or a `Failure`) -> None."""


class Pool(Protocol):
    """Module players that work at the same time; `tfrl_systems.drivers` implements such pools."""

    def broadcast(self, data: Task[Any]) -> None:
        """Make every player load a task."""

    def map(self, jobs: Sequence[Module], on_result: OnResult) -> object:
        """Run all modules; `on_result` gets each result as it arrives, and may end the call."""

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
        played = self.play(modules, Default(), progress)
        pairs = zip(modules, played, strict=True)
        compiled = [module for module, outcome in pairs if not isinstance(outcome, Failure)]
        plain_sizes: list[ObjectSize | Failure] = self.map(CompilePlainly(), compiled)
        sizes = iter(plain_sizes)
        return [
            outcome if isinstance(outcome, Failure) else _with_size(outcome, next(sizes))
            for outcome in played
        ]

    def map(
        self,
        task: Task[Result],
        modules: Sequence[Module],
        progress: Callable[[int], None] | None = None,
    ) -> list[Result | Failure]:
        """Do a task with each module.

        Args:
          task: what to do.
          modules: the modules.
          progress: called with 1 after each module.

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


def _with_size(trajectory: Trajectory, size: ObjectSize | Failure) -> Trajectory | Failure:
    return size if isinstance(size, Failure) else dataclasses.replace(trajectory, size=size)
