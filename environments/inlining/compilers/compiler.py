"""Compilers behind one small interface: the embedded LLVM, and a clang of the user's.

Both run stock LLVM in a process of its own and speak the interactive channel (`channel.py`), so
that the same policy steers either. Answering the default decision gives the bytes of a plain -Oz.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from environments.inlining.compilers.compilation import (
    DEFAULT_TIMEOUT_S,
    Compilation,
    CompiledModule,
    Decide,
)
from environments.inlining.compilers.embedded import EmbeddedLlvm
from environments.inlining.compilers.object_size import ObjectSize
from environments.inlining.compilers.system_clang import SystemClang
from environments.inlining.corpus.modules import Module

__all__ = ["Compiler", "EmbeddedLlvm", "SystemClang", "make_compiler", "run_policy"]


class Compiler(Protocol):
    """Compiles modules at -Oz, asking for every inlining decision, one module at a time.

    Attributes:
      name: short, for messages and tables.
      identity: everything that decides the bytes of an object; the key of caches.
    """

    name: str
    identity: str

    @property
    def announced(self) -> tuple[str, ...]:
        """Names of the features in the header of its channel, in order."""

    def compile(self, module: Module) -> Compilation:
        """Begins to compile `module` under advice."""

    def compile_plain(self, module: Module) -> ObjectSize:
        """Compiles `module` without advice, as users do."""

    def read_calls(self, module: Module) -> Mapping[str, Sequence[str]]:
        """Direct calls in `module` as it was written: callees by name of the calling function."""

    def close(self) -> None:
        """Ends the compiler's process, if one waits; the compiler may be used again."""


def make_compiler(name: str = "embedded", timeout_s: float = DEFAULT_TIMEOUT_S) -> Compiler:
    """The compiler called `name`: "embedded", or a clang by its path or its name on PATH.

    Raises:
      UserError: there is no such program, it is not clang, or it is too old.
    """
    if name == "embedded":
        return EmbeddedLlvm(timeout_s)
    return SystemClang(name, timeout_s)


def run_policy(compiler: Compiler, module: Module, decide: Decide) -> CompiledModule:
    """Compiles `module` with `decide` at every call site.

    Raises:
      CompilerError: the compiler failed, died or hung.
    """
    with compiler.compile(module) as compilation:
        while (site := compilation.next_site()) is not None:
            compilation.advise(decide(site))
        return compilation.result()
