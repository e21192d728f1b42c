"""What is done with one module: compiled under a policy here, explored in `exploration.py`.

A task needs a compiler and no store, so that it can be done in another process. It says itself what
of it a store has, and what of its result is to be kept.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Protocol, TypeVar

import numpy as np

from environments.inlining.compilation import CompilerError
from environments.inlining.compilers import Compiler
from environments.inlining.corpus import Module
from environments.inlining.features import DERIVATION, feature_names
from environments.inlining.heuristics import Policy
from environments.inlining.trajectories import Trajectory, TrajectoryStore
from environments.inlining.walk import Walk

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Shelf:
    """Where a store keeps what one compiler makes of one module.

    Attributes:
      store: the store.
      module_name: name of the module.
      names: names of the features, in order.
      key: hash of all that decides the module's object besides compiler and decisions.
      identity: of the compiler and of the features that are derived from what it says.
    """

    store: TrajectoryStore
    module_name: str
    names: tuple[str, ...]
    key: str
    identity: str

    @classmethod
    def of(cls, store: TrajectoryStore, compiler: Compiler, module: Module) -> Shelf:
        """The place in `store` of what `compiler` makes of `module`.

        Raises:
          CompilerError: the module cannot be read.
        """
        names = feature_names(compiler.announced)
        derived = hashlib.sha256(f"{DERIVATION} {','.join(names)}".encode()).hexdigest()
        identity = f"{compiler.identity} {derived[:16]}"
        return cls(store, module.name, names, _content_key(module), identity)

    def recall(self, policy: Policy) -> Trajectory | None:
        """The compile that a policy would come to, if it was kept."""
        decide = policy.begin(self.module_name, self.names)
        return self.store.recall(self.key, self.identity, self.module_name, decide)

    def get(self, decisions: np.ndarray) -> Trajectory | None:
        """The compile with exactly these decisions, if it was kept."""
        return self.store.get(self.key, self.identity, self.module_name, decisions)

    def put(self, trajectory: Trajectory) -> None:
        """Keeps a compile."""
        self.store.put(self.key, self.identity, trajectory)

    def get_record(self, request: str) -> dict[str, np.ndarray] | None:
        """What `put_record` kept, or None."""
        return self.store.get_record(self.key, self.identity, request)

    def put_record(self, request: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Keeps what several compiles found out, under a name of its own."""
        self.store.put_record(self.key, self.identity, request, arrays)


class Task(Protocol[Result]):
    """Something that is done with modules, one by one. It can be pickled."""

    def recall(self, shelf: Shelf) -> Result | None:
        """The result for the shelf's module, if all of it was kept."""

    def run(self, compiler: Compiler, module: Module) -> Result:
        """Does it.

        Raises:
          CompilerError: the compiler failed, died or hung.
        """

    def keep(self, shelf: Shelf, result: Result) -> None:
        """Puts what is worth keeping of a result on the shelf."""


@dataclasses.dataclass(frozen=True)
class Play:
    """One episode: the module compiled under a policy.

    Attributes:
      policy: the policy.
    """

    policy: Policy

    def recall(self, shelf: Shelf) -> Trajectory | None:
        """See `Task`."""
        return shelf.recall(self.policy)

    def run(self, compiler: Compiler, module: Module) -> Trajectory:
        """See `Task`."""
        decide = self.policy.begin(module.name, feature_names(compiler.announced))
        with Walk(compiler, module) as walk:
            return walk.play(decide)

    def keep(self, shelf: Shelf, result: Trajectory) -> None:
        """See `Task`."""
        shelf.put(result)


def perform(
    task: Task[Result], compiler: Compiler, module: Module, store: TrajectoryStore
) -> Result:
    """Does `task` with a module, or recalls it where the store has it.

    Raises:
      CompilerError: the compiler failed, died or hung.
    """
    shelf = Shelf.of(store, compiler, module)
    result = task.recall(shelf)
    if result is None:
        result = task.run(compiler, module)
        task.keep(shelf, result)
    return result


def play(compiler: Compiler, module: Module, policy: Policy, store: TrajectoryStore) -> Trajectory:
    """One episode: `module` compiled under `policy`, or recalled where the store has it.

    Raises:
      CompilerError: the compiler failed, died or hung.
    """
    return perform(Play(policy), compiler, module, store)


def _content_key(module: Module) -> str:
    try:
        parts = [module.sha256, *module.command]
        if module.thinlto_index is not None:
            parts.append(hashlib.sha256(module.thinlto_index.read_bytes()).hexdigest())
    except OSError as error:
        raise CompilerError(
            f"{module.name}: expected to read the module, found: {error}; build the corpus again"
        ) from error
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
