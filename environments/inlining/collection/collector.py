"""Many modules, several compilers, nothing compiled twice, and all of it outliving what goes wrong.

The store is with the caller: what it has is recalled, only the rest goes to the compilers, and what
they come to is put there at once, so that an interruption loses nothing that was finished. Where
the compilers run, in this process or in others, is up to the `Pool` that the caller makes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from environments.errors import Failure, UserError
from environments.inlining.collection.store import Trajectory, TrajectoryStore
from environments.inlining.collection.tasks import CompilePlainly, ModuleStore, Play, Task
from environments.inlining.compilers.compilation import CompilerError
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.compilers.object_size import ObjectSize
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Default, Policy

Result = TypeVar("Result")

_MAX_ATTEMPTS = 2


@dataclasses.dataclass(frozen=True)
class _UsersMistake:
    """Stands in the place of a result, where the task could be done with no other module either.

    Attributes:
      message: of the `UserError`.
    """

    message: str


class ModulePlayer:
    """Does a task with one module after another; each worker of a pool holds one, with a compiler.

    A compiler that dies or hangs is replaced, and the module tried once more.

    Args:
      make_compiler: makes the compiler; whether it works is found out at once.

    Raises:
      UserError: there is no such compiler, or it does not work.
    """

    def __init__(self, make_compiler: Callable[[], Compiler]) -> None:
        self._compiler = make_compiler()
        assert self._compiler.announced
        self._task: Task[Any] | None = None

    def load(self, task: Task[Any]) -> None:
        """Takes the task for the modules that follow."""
        self._task = task

    def run(self, module: Module) -> Any:
        """The task's result for the module, a function of the two; or what stands in its place."""
        assert self._task is not None
        try:
            for _ in range(_MAX_ATTEMPTS):
                try:
                    return self._task.run(self._compiler, module)
                except CompilerError as error:
                    message = str(error)
        except UserError as error:
            return _UsersMistake(str(error))
        return Failure(module.name, message)

    def close(self) -> None:
        """Ends the compiler's process."""
        self._compiler.close()


OnResult = Callable[[int, Any], None]
"""(number of the module, the task's result or a `Failure`) -> None."""


class Pool(Protocol):
    """Module players, as many as work at the same time; `tfrl_systems.drivers` has such pools."""

    def broadcast(self, data: Task[Any]) -> None:
        """Has every player load a task."""

    def map(self, jobs: Sequence[Module], on_result: OnResult) -> object:
        """Has the players run each module; `on_result` is told of each result as it comes.

        What `on_result` raises ends the call.
        """

    def close(self) -> None:
        """Ends the players, also those at work."""


MakePool = Callable[[Callable[[], ModulePlayer]], Pool]
"""(makes a player; can be pickled if `make_compiler` can) -> a pool of such players."""


class Collector:
    """Does tasks with many modules.

    The results do not depend on the pool: compiles are deterministic, and results keep the order of
    the modules.

    Args:
      make_compiler: makes a compiler; called for each player.
      store: where compiles are kept.
      make_pool: makes what does the work, once something is not in the store.

    Attributes:
      compiler: one like those that compile, to ask what all of them are.
      store: the same.

    Raises:
      UserError: there is no such compiler, or it does not work.
    """

    def __init__(
        self,
        make_compiler: Callable[[], Compiler],
        store: TrajectoryStore,
        make_pool: MakePool,
    ) -> None:
        self.compiler = make_compiler()
        assert self.compiler.announced
        self.compiler.close()  # it has said all that is asked of it here
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
        """One episode for each module, in the order of `modules`."""
        return self.map(Play(policy), modules, progress)

    def play_default(
        self, modules: Sequence[Module], progress: Callable[[int], None] | None = None
    ) -> list[Trajectory | Failure]:
        """LLVM's own decisions in each module, with the sizes of plain compiles.

        Returns:
          As `play`. The sizes are what to measure policies against; see `CompilePlainly`.
        """
        played = self.play(modules, Default(), progress)
        pairs = zip(modules, played, strict=True)
        compiled = [module for module, one in pairs if not isinstance(one, Failure)]
        found: list[ObjectSize | Failure] = self.map(CompilePlainly(), compiled)
        sizes = iter(found)
        return [one if isinstance(one, Failure) else _with_size(one, next(sizes)) for one in played]

    def map(
        self,
        task: Task[Result],
        modules: Sequence[Module],
        progress: Callable[[int], None] | None = None,
    ) -> list[Result | Failure]:
        """Does `task` with each module.

        Args:
          task: what to do.
          modules: with what.
          progress: called with 1 after each.

        Returns:
          One result or `Failure` for each module, in the order of `modules`.

        Raises:
          UserError: the task can be done with none.
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
            found = task.recall(module_store)
            if found is None:
                module_stores[number] = module_store
            else:
                take(number, found)
        missing = list(module_stores)

        def keep(place: int, result: Any) -> None:
            if isinstance(result, _UsersMistake):
                raise UserError(result.message)
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
        """Ends the compilers; the collector may be used again."""
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
