"""Compiling many modules at once, never the same compile twice, and outliving what goes wrong."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import queue
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from environments.inlining.compilation import CompilerError
from environments.inlining.compilers import Compiler
from environments.inlining.corpus import Module
from environments.inlining.features import DERIVATION, feature_names
from environments.inlining.heuristics import Policy
from environments.inlining.trajectories import Trajectory, TrajectoryStore
from environments.inlining.walk import Walk

Result = TypeVar("Result")
Task = TypeVar("Task")


@dataclasses.dataclass(frozen=True)
class Failure:
    """A module that could not be compiled.

    Attributes:
      module: its name.
      message: one line that says why.
    """

    module: str
    message: str


def content_key(module: Module) -> str:
    """Hash of all that decides a module's object besides the compiler and the decisions.

    Raises:
      CompilerError: the module cannot be read.
    """
    try:
        parts = [module.sha256, *module.command]
        if module.thinlto_index is not None:
            parts.append(hashlib.sha256(module.thinlto_index.read_bytes()).hexdigest())
    except OSError as error:
        raise CompilerError(
            f"{module.name}: expected to read the module, found: {error}; build the corpus again"
        ) from error
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def play(compiler: Compiler, module: Module, policy: Policy, store: TrajectoryStore) -> Trajectory:
    """One episode: `module` compiled under `policy`, or recalled where the store has it.

    Raises:
      CompilerError: the compiler failed, died or hung.
    """
    identity = compile_identity(compiler)
    decide = policy.begin(module.name, feature_names(compiler.announced))
    key = content_key(module)
    recalled = store.recall(key, identity, module.name, decide)
    if recalled is not None:
        return recalled
    with Walk(compiler, module) as walk:
        trajectory = walk.play(decide)
    store.put(key, identity, trajectory)
    return trajectory


def compile_identity(compiler: Compiler) -> str:
    """The compiler, and the features that were derived from what it says."""
    derived = f"{DERIVATION} {','.join(feature_names(compiler.announced))}"
    return f"{compiler.identity} {hashlib.sha256(derived.encode()).hexdigest()[:16]}"


class Collector:
    """Runs compiles on several compilers side by side.

    The result does not depend on the number of workers: compiles are deterministic, and results
    keep the order of their tasks. A compiler that dies or hangs is replaced and its task tried
    again; a task that fails every time becomes a `Failure`, and the rest goes on.

    Args:
      make_compiler: called once for each worker.
      store: where compiles are kept.
      num_workers: compilers that run at the same time.
      max_attempts: how often a task is tried.
    """

    def __init__(
        self,
        make_compiler: Callable[[], Compiler],
        store: TrajectoryStore,
        num_workers: int = 1,
        max_attempts: int = 2,
    ) -> None:
        self.store = store
        self.num_workers = num_workers
        self._max_attempts = max_attempts
        self._closing = False
        # A compiler starts its process with its first module: these hold nothing yet.
        self._compilers = [make_compiler() for _ in range(num_workers)]
        self._idle: queue.SimpleQueue[Compiler] = queue.SimpleQueue()
        for compiler in self._compilers:
            self._idle.put(compiler)
        self._pool = concurrent.futures.ThreadPoolExecutor(num_workers)

    @property
    def compiler(self) -> Compiler:
        """One of the compilers, to ask what all of them are."""
        return self._compilers[0]

    def play(
        self,
        modules: Sequence[Module],
        policy: Policy,
        progress: Callable[[int], None] | None = None,
    ) -> list[Trajectory | Failure]:
        """One episode for each module, in the order of `modules`."""
        return self.map(
            lambda compiler, module: play(compiler, module, policy, self.store),
            modules,
            lambda module: module.name,
            progress,
        )

    def map(
        self,
        task_fn: Callable[[Compiler, Task], Result],
        tasks: Iterable[Task],
        name_fn: Callable[[Task], str],
        progress: Callable[[int], None] | None = None,
        deadline_s: float | None = None,
    ) -> list[Result | Failure]:
        """Runs `task_fn` on every task.

        Args:
          task_fn: does one task with the compiler that it is handed.
          tasks: what to do.
          name_fn: what to call a task that failed.
          progress: called with 1 after each task.
          deadline_s: on `time.monotonic`'s clock; tasks not begun by then are left out.

        Returns:
          One result or `Failure` for each task that was begun, in the order of `tasks`.
        """

        def run(task: Task) -> Result | Failure | None:
            if deadline_s is not None and time.monotonic() > deadline_s:
                return None
            result = self._attempt(task_fn, task, name_fn(task))
            if progress is not None:
                progress(1)
            return result

        futures = [self._pool.submit(run, task) for task in tasks]
        try:
            results = [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        return [result for result in results if result is not None]

    def _attempt(
        self, task_fn: Callable[[Compiler, Task], Result], task: Task, name: str
    ) -> Result | Failure:
        compiler = self._idle.get()
        try:
            for attempt in range(self._max_attempts):
                try:
                    return task_fn(compiler, task)
                except CompilerError as error:
                    if self._closing or attempt + 1 == self._max_attempts:
                        return Failure(name, str(error))
            raise AssertionError("unreachable")
        finally:
            self._idle.put(compiler)

    def close(self) -> None:
        """Ends the compilers, also those at work; returns when nothing of them is left."""
        self._closing = True
        for compiler in self._compilers:
            compiler.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for compiler in self._compilers:
            compiler.close()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
