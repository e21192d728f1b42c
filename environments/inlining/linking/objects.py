"""The objects of whole projects on disk, for a linker."""

from __future__ import annotations

import dataclasses
import pathlib

from environments.inlining.collection.playing import compile_under
from environments.inlining.collection.tasks import ModuleStore
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Default, Policy


@dataclasses.dataclass(frozen=True)
class WriteObject:
    """The task of compiling a module under a policy and writing the object to disk.

    Attributes:
      policy: the policy; LLVM's own decisions are compiled plainly, as users do.
      directory: holds the object afterwards, under the module's name with ".o" behind it.
    """

    policy: Policy
    directory: pathlib.Path

    def recall(self, module_store: ModuleStore) -> pathlib.Path | None:
        """See `Task`; objects are not kept."""
        return None

    def run(self, compiler: Compiler, module: Module) -> pathlib.Path:
        """See `Task`."""
        path = self.directory / f"{module.name}.o"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self._compile(compiler, module))
        return path

    def keep(self, module_store: ModuleStore, result: pathlib.Path) -> None:
        """See `Task`; objects are not kept."""

    def _compile(self, compiler: Compiler, module: Module) -> bytes:
        if self.policy.fingerprint == Default.fingerprint:
            return compiler.compile_plain(module).data
        return compile_under(self.policy, compiler, module).data
