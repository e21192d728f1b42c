"""Many modules, several compilers, nothing compiled twice, and all of it outliving what goes wrong.

The store is with the caller: what it has is recalled, only the rest goes to the compilers, and what
they come to is put there at once, so that an interruption loses nothing that was finished. They are
in this process, or in others by way of a `Pool`; the results are the same.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from environments.errors import UserError
from environments.inlining.compilation import CompilerError
from environments.inlining.compilers import Compiler
from environments.inlining.corpus import Module
from environments.inlining.heuristics import Policy
from environments.inlining.tasks import Play, Shelf, Task
from environments.inlining.trajectories import Trajectory, TrajectoryStore

Result = TypeVar("Result")

_MAX_ATTEMPTS = 2


@dataclasses.dataclass(frozen=True)
class Failure:
    """A module with which a task could not be done.

    Attributes:
      module: its name.
      message: one line that says why.
      ends_all: that it is not for the module: the task could be done with no other either.
    """

    module: str
    message: str
    ends_all: bool = False


class ModulePlayer:
    """Does tasks with a compiler of its own; each worker of a pool holds one.

    A compiler that dies or hangs is replaced, and the module tried once more.

    Args:
      make_compiler: makes the compiler; whether it works is found out at once.

    Raises:
      UserError: there is no such compiler, or it does not work.
    """

    def __init__(self, make_compiler: Callable[[], Compiler]) -> None:
        self._compiler = make_compiler()
        assert self._compiler.announced

    def run(self, task: Task[Result], module: Module) -> Result | Failure:
        """The task's result for the module, a function of the two."""
        try:
            for _ in range(_MAX_ATTEMPTS):
                try:
                    return task.run(self._compiler, module)
                except CompilerError as error:
                    message = str(error)
        except UserError as error:
            return Failure(module.name, str(error), ends_all=True)
        return Failure(module.name, message)

    def close(self) -> None:
        """Ends the compiler's process."""
        self._compiler.close()


OnResult = Callable[[int, Any], None]
"""(number of the module, the task's result or a `Failure`) -> None."""


class Pool(Protocol):
    """Module players side by side."""

    def map(self, task: Task[Any], modules: Sequence[Module], on_result: OnResult) -> None:
        """Does `task` with each module; `on_result` is told of each result as it comes.

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
      make_pool: makes what does the work, once something is not in the store; by default that is
        this process, with one module after the other.

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
        make_pool: MakePool | None = None,
    ) -> None:
        self.compiler = make_compiler()
        assert self.compiler.announced
        if make_pool is not None:
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
        shelves: dict[int, Shelf] = {}

        def take(number: int, result: Any) -> None:
            results[number] = result
            if progress is not None:
                progress(1)

        for number, module in enumerate(modules):
            try:
                shelf = Shelf.of(self.store, self.compiler, module)
            except CompilerError as error:
                take(number, Failure(module.name, str(error)))
                continue
            found = task.recall(shelf)
            if found is None:
                shelves[number] = shelf
            else:
                take(number, found)
        missing = list(shelves)

        def keep(place: int, result: Any) -> None:
            if isinstance(result, Failure):
                if result.ends_all:
                    raise UserError(result.message)
            else:
                task.keep(shelves[missing[place]], result)
            take(missing[place], result)

        if missing:
            self._players().map(task, [modules[number] for number in missing], keep)
        return results

    def _players(self) -> Pool:
        if self._pool is None:
            if self._make_pool is None:
                self._pool = _InThisProcess(lambda: self.compiler)
            else:
                self._pool = self._make_pool(functools.partial(ModulePlayer, self._make_compiler))
        return self._pool

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


class _InThisProcess:
    """One player, one module after the other."""

    def __init__(self, make_compiler: Callable[[], Compiler]) -> None:
        self._player = ModulePlayer(make_compiler)

    def map(self, task: Task[Any], modules: Sequence[Module], on_result: OnResult) -> None:
        for number, module in enumerate(modules):
            on_result(number, self._player.run(task, module))

    def close(self) -> None:
        self._player.close()
