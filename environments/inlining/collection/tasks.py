"""Tasks, which are done with one module at a time: compiling it under a policy, or plainly.

`run` needs a compiler but no store, so another process can do it. The other two methods look up a
task's result in a store, and put the result there. `exploration` has more tasks.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Generic, TypeVar

import numpy as np

from environments.inlining.collection.episode import compile_under
from environments.inlining.collection.store import ModuleStore, Trajectory, TrajectoryStore
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.compilers.object_size import ObjectSize
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Default, Policy

Result = TypeVar("Result")
# The name under which the sizes of a plain compile are kept.
_PLAIN = "plain"


class Task(Generic[Result]):
    """Something that is done with modules, one by one. A task can be pickled."""

    def recall(self, module_store: ModuleStore) -> Result | None:
        """Return the result for a module if all of it was kept; else None."""
        return None

    def run(self, compiler: Compiler, module: Module) -> Result:
        """Do the task with a module and return the result.

        Raises:
          CompilerError: the compiler failed, died or hung.
        """
        raise NotImplementedError

    def keep(self, module_store: ModuleStore, result: Result) -> None:
        """Put into the store what `recall` needs to return this result, if it can be kept."""


@dataclasses.dataclass(frozen=True)
class Play(Task[Trajectory]):
    """The task of playing one episode: compiling the module under a policy."""

    policy: Policy

    def recall(self, module_store: ModuleStore) -> Trajectory | None:
        """See `Task`."""
        return module_store.recall(self.policy)

    def run(self, compiler: Compiler, module: Module) -> Trajectory:
        """See `Task`."""
        return Trajectory.of(module, compiler, compile_under(self.policy, compiler, module))

    def keep(self, module_store: ModuleStore, result: Trajectory) -> None:
        """See `Task`."""
        module_store.put(result)


@dataclasses.dataclass(frozen=True)
class CompilePlainly(Task[ObjectSize]):
    """The task of compiling the module at -Oz as users do. Policies are measured against its sizes.

    Answering each question with LLVM's own decision (`heuristics.Default`) mostly gives the same
    object, but not always. Inlining can leave call sites in unreachable code, for instance in the
    landing pad of an invoke whose callee turned out not to throw. A plain -Oz inlines there, too;
    a steered one skips such a call site without asking. The call that stays there counts as one
    more use of the callee in the decisions that follow.
    """

    def recall(self, module_store: ModuleStore) -> ObjectSize | None:
        """See `Task`."""
        record = module_store.get_record(_PLAIN)
        if record is None:
            return None
        groups = record["packed_groups"].tobytes()
        return ObjectSize(int(record["text_bytes"]), int(record["exec_bytes"]), groups)

    def run(self, compiler: Compiler, module: Module) -> ObjectSize:
        """See `Task`."""
        return compiler.compile_plain(module).size

    def keep(self, module_store: ModuleStore, result: ObjectSize) -> None:
        """See `Task`."""
        module_store.put_record(
            _PLAIN,
            {
                "text_bytes": np.array(result.text_bytes),
                "exec_bytes": np.array(result.exec_bytes),
                "packed_groups": np.frombuffer(result.packed_groups, np.uint8),
            },
        )


@dataclasses.dataclass(frozen=True)
class WriteObject(Task[pathlib.Path]):
    """The task of compiling a module under a policy and writing DIRECTORY/NAME.o.

    LLVM's own decisions are compiled plainly, as users do. Objects are not kept.
    """

    policy: Policy
    directory: pathlib.Path

    def run(self, compiler: Compiler, module: Module) -> pathlib.Path:
        """See `Task`."""
        path = self.directory / f"{module.name}.o"
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.policy.fingerprint == Default.fingerprint:
            path.write_bytes(compiler.compile_plain(module).data)
        else:
            path.write_bytes(compile_under(self.policy, compiler, module).data)
        return path


def perform(
    task: Task[Result], compiler: Compiler, module: Module, store: TrajectoryStore
) -> Result:
    """Return a task's result for a module: from the store, or else done and put there.

    Raises:
      CompilerError: the compiler failed, died or hung.
    """
    module_store = ModuleStore.of(store, compiler, module)
    result = task.recall(module_store)
    if result is None:
        result = task.run(compiler, module)
        task.keep(module_store, result)
    return result
