"""The interface of compilers, with two implementations: the embedded LLVM and the user's clang.

Both run stock LLVM in a process of its own and use the interactive channel (`channel.py`), so the
same policy can steer either. If a policy always answers LLVM's own decision, the object is mostly
that of a plain -Oz; `collection.tasks.CompilePlainly` names the exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from environments.inlining.compilers.compilation import Compilation, CompiledModule, Decide
from environments.inlining.compilers.embedded import EmbeddedLlvm
from environments.inlining.compilers.system_clang import SystemClang
from environments.inlining.corpus.modules import Module


class Compiler(Protocol):
    """Compiles modules at -Oz, one at a time, and asks for every inlining decision.

    Attributes:
      name: for messages and tables.
      identity: text that is the same only for compilers that make the same objects; part of the
        key of caches.
    """

    name: str
    identity: str

    @property
    def announced(self) -> tuple[str, ...]:
        """Names of the features in the header of the compiler's channel, in order."""

    def compile(self, module: Module) -> Compilation:
        """Begin to compile a module under advice."""

    def compile_plain(self, module: Module) -> CompiledModule:
        """Compile a module without advice, as users do; there are no decisions."""

    def read_calls(self, module: Module) -> Mapping[str, Sequence[str]]:
        """Return the direct calls in a module before optimisation: callees by caller's name."""

    def read_instructions(self, module: Module) -> Mapping[str, int]:
        """Return the number of instructions of each function of a module before optimisation."""

    def fork(self) -> Compiler:
        """Return another compiler that makes the same objects, for a second module meanwhile."""

    def close(self) -> None:
        """End the compiler's processes, if there are any; the compiler may be used again."""


def make_compiler(name: str = "embedded") -> Compiler:
    """Make a compiler: "embedded", or a clang by its path or its name on PATH.

    Raises:
      UserError: there is no such program, it is not clang, or it is too old.
    """
    if name == "embedded":
        return EmbeddedLlvm()
    return SystemClang(name)


def run_policy(compiler: Compiler, module: Module, decide: Decide) -> CompiledModule:
    """Compile a module, letting `decide` decide every call site.

    Raises:
      CompilerError: the compiler failed, died or hung.
    """
    with compiler.compile(module) as compilation:
        while (site := compilation.next_site()) is not None:
            compilation.advise(decide(site))
        return compilation.result()


class SharedCompilers:
    """Compilers that environments use in turn, so that a fork need not start one of its own.

    Whoever takes compilers here calls `join` first and `leave` last. Where one user is left, it has
    its own, so the idle ones are closed.

    Args:
      compiler: the first of them; the others are its forks.
    """

    def __init__(self, compiler: Compiler) -> None:
        self._first = compiler
        self._idle = [compiler]
        self._num_users = 0

    def join(self) -> None:
        """Enter one more user."""
        self._num_users += 1

    def take(self) -> Compiler:
        """Return a compiler that nobody uses."""
        return self._idle.pop() if self._idle else self._first.fork()

    def give_back(self, compiler: Compiler) -> None:
        """Let others use a compiler, which compiles nothing at present."""
        self._idle.append(compiler)

    def leave(self) -> None:
        """Remove one user, who has given back what it took."""
        self._num_users -= 1
        if self._num_users <= 1:
            for compiler in self._idle:
                compiler.close()
