"""Compilers that several environments use in turn, so that a fork need not start one of its own."""

from __future__ import annotations

from environments.inlining.compilers.compiler import Compiler


class SharedCompilers:
    """Compilers of one kind; each compiles for one environment at a time.

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
