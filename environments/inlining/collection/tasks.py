"""Tasks, which are done with one module at a time: compiling under a policy, or plainly.

`explore.py` has a third task. `run` needs a compiler but no store, so another process can do it.
The other two methods look up a task's result in a store, and put the result there.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Protocol, TypeVar

import numpy as np

from environments.inlining.collection.playing import compile_under
from environments.inlining.collection.store import Trajectory, TrajectoryStore
from environments.inlining.compilers.compilation import CompilerError
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.compilers.object_size import ObjectSize
from environments.inlining.corpus.modules import Module
from environments.inlining.features import DERIVATION, feature_names
from environments.inlining.heuristics import Policy

Result = TypeVar("Result")
# The name under which the sizes of a plain compile are kept.
_PLAIN = "plain"


@dataclasses.dataclass(frozen=True)
class ModuleStore:
    """The part of a store that holds one module's compiles by one compiler.

    Attributes:
      store: the store.
      module_name: name of the module.
      project: the project that it is a part of.
      names: names of the features, in order.
      key: hash of all that decides the module's object besides compiler and decisions.
      identity: identity of the compiler, and of the features derived from its channel's features.
    """

    store: TrajectoryStore
    module_name: str
    project: str
    names: tuple[str, ...]
    key: str
    identity: str

    @classmethod
    def of(cls, store: TrajectoryStore, compiler: Compiler, module: Module) -> ModuleStore:
        """Find the part of `store` that holds the compiles of `module` by `compiler`.

        Raises:
          CompilerError: the module cannot be read.
        """
        names = feature_names(compiler.announced)
        derived = hashlib.sha256(f"{DERIVATION} {','.join(names)}".encode()).hexdigest()
        identity = f"{compiler.identity} {derived[:16]}"
        return cls(store, module.name, module.project, names, _content_key(module), identity)

    def recall(self, policy: Policy) -> Trajectory | None:
        """Return the compile that a policy would lead to; None if it was not kept."""
        decide = policy.begin(self.module_name, self.names)
        return self.store.recall(self.key, self.identity, self.module_name, decide)

    def get(self, decisions: np.ndarray) -> Trajectory | None:
        """Return the compile with exactly these decisions; None if it was not kept."""
        return self.store.get(self.key, self.identity, self.module_name, decisions)

    def put(self, trajectory: Trajectory) -> None:
        """Keep a compile."""
        self.store.put(self.key, self.identity, trajectory)

    def get_record(self, request: str) -> dict[str, np.ndarray] | None:
        """Return the arrays that `put_record` kept under a name; None if there are none."""
        return self.store.get_record(self.key, self.identity, request)

    def put_record(self, request: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep the results of several compiles under a name of their own."""
        self.store.put_record(self.key, self.identity, request, arrays)


class Task(Protocol[Result]):
    """Something that is done with modules, one by one. A task can be pickled."""

    def recall(self, module_store: ModuleStore) -> Result | None:
        """Return the result for a module if all of it was kept; else None."""

    def run(self, compiler: Compiler, module: Module) -> Result:
        """Do the task with a module and return the result.

        Raises:
          CompilerError: the compiler failed, died or hung.
        """

    def keep(self, module_store: ModuleStore, result: Result) -> None:
        """Put into the store what `recall` needs to return this result."""


@dataclasses.dataclass(frozen=True)
class Play:
    """The task of playing one episode: compiling the module under a policy.

    Attributes:
      policy: the policy.
    """

    policy: Policy

    def recall(self, module_store: ModuleStore) -> Trajectory | None:
        """See `Task`."""
        return module_store.recall(self.policy)

    def run(self, compiler: Compiler, module: Module) -> Trajectory:
        """See `Task`."""
        compiled = compile_under(self.policy, compiler, module)
        return Trajectory.of(module.name, feature_names(compiler.announced), compiled)

    def keep(self, module_store: ModuleStore, result: Trajectory) -> None:
        """See `Task`."""
        module_store.put(result)


@dataclasses.dataclass(frozen=True)
class CompilePlainly:
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


def perform(
    task: Task[Result], compiler: Compiler, module: Module, store: TrajectoryStore
) -> Result:
    """Return a task's result for a module: from the store, or else by doing the task.

    A new result is put into the store.

    Raises:
      CompilerError: the compiler failed, died or hung.
    """
    module_store = ModuleStore.of(store, compiler, module)
    result = task.recall(module_store)
    if result is None:
        result = task.run(compiler, module)
        task.keep(module_store, result)
    return result


def _content_key(module: Module) -> str:
    try:
        parts = [module.sha256, *module.command]
        if module.thinlto_index is not None:
            parts.append(hashlib.sha256(module.thinlto_index.read_bytes()).hexdigest())
            parts.append("merged")  # Unlike those that an older version kept.
    except OSError as error:
        raise CompilerError(
            f"{module.name}: expected to read the module, found: {error}; build the corpus again"
        ) from error
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
