"""An episode of inlining: one compile, in which a policy decides call site by call site."""

from __future__ import annotations

import dataclasses

import numpy as np

from environments.inlining.collection.store import Trajectory
from environments.inlining.compilers.compilation import CallSite, CompiledModule
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.corpus.modules import Module
from environments.inlining.features import FeatureTracker


class CompileEpisode:
    """A compile in progress, with the features that a policy sees at each call site.

    It is a context manager; leaving it early ends the compile.

    Args:
      compiler: the compiler; it must not be compiling another module.
      module: the module to compile.

    Attributes:
      names: names of the features, F of them.
      site: the call site that `next_row` returned last, None before the first and at the end.
      compilation: the compile itself.

    Raises:
      CompilerError: the compile cannot be started.
    """

    def __init__(self, compiler: Compiler, module: Module) -> None:
        self._module_name = module.name
        self._tracker = FeatureTracker(compiler.announced)
        self._rows: list[list[int]] = []
        self._functions: list[tuple[str | None, str | None]] = []
        self.names = self._tracker.names
        self.site: CallSite | None = None
        self.compilation = compiler.compile(module)

    def next_features(self) -> np.ndarray | None:
        """Like `next_row`, but return an array, int64 [F]."""
        row = self.next_row()
        return None if row is None else np.array(row, np.int64)

    def next_row(self) -> list[int] | None:
        """Go on to the next call site; return its F features, or None when the compile is over.

        Raises:
          CompilerError: the compiler failed, died or hung.
        """
        self.site = self.compilation.next_site()
        if self._rows:
            self._tracker.record(self.compilation.last_decision, self.compilation.last_callee)
        if self.site is None:
            return None
        self._rows.append(self._tracker.observe(self.site, self.compilation.linkage))
        self._functions.append((self.site.caller, self.site.callee))
        return self._rows[-1]

    def decide(self, decision: int) -> None:
        """Decide the current call site: 1 to inline, 0 not to.

        Raises:
          CompilerError: the compiler does not read the decisions.
        """
        self.compilation.advise(decision)

    def result(self) -> CompiledModule:
        """Return the whole compile, once `next_row` has returned None.

        Raises:
          CompilerError: the compiler's output is not an object file.
        """
        features = np.array(self._rows, np.int64).reshape(len(self._rows), len(self.names))
        return dataclasses.replace(
            self.compilation.result(), features=features, names_fn=lambda: tuple(self._functions)
        )

    def trajectory(self) -> Trajectory:
        """Return what is kept of the compile; otherwise like `result`."""
        return Trajectory.of(self._module_name, self.names, self.result())

    def close(self) -> None:
        """End the compile and release its resources; may be called again."""
        self.compilation.close()

    def __enter__(self) -> CompileEpisode:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
