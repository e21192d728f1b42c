"""Compile a module under a policy: inside clang if it can be put there, else by the channel.

Both roads give the same decisions, features and bytes. A clang with the policy inside takes about
as long as a plain one; the channel waits for an answer at each call site.
"""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np

from environments.inlining.collection.variation import POLICY_ALONE, SiteNames, Variation
from environments.inlining.compilers.compilation import CallSite, CompiledModule
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.corpus.modules import Module
from environments.inlining.features import FeatureTracker, feature_names
from environments.inlining.heuristics import Policy, row_by_row
from environments.inlining.plugin.compiler import PluginClang


class CompileEpisode:
    """A compile in progress, with the features that a policy sees at each call site.

    The compiler must not be compiling another module.

    Attributes:
      site: the call site that `next_row` returned last, None before the first and at the end.

    Raises:
      CompilerError: the compile cannot be started.
    """

    def __init__(self, compiler: Compiler, module: Module) -> None:
        self.site: CallSite | None = None
        self._tracker = FeatureTracker(compiler.announced)
        self._rows: list[list[int]] = []
        self._functions: list[tuple[str | None, str | None]] = []
        self._compilation = compiler.compile(module)

    def next_row(self) -> list[int] | None:
        """Go on to the next call site; return its F features, or None when the compile is over.

        Raises:
          CompilerError: the compiler failed, died or hung.
        """
        self.site = self._compilation.next_site()
        if self._rows:
            self._tracker.record(*self._compilation.last)
        if self.site is None:
            return None
        self._rows.append(self._tracker.observe(self.site, self._compilation.linkage))
        self._functions.append((self.site.caller, self.site.callee))
        return self._rows[-1]

    def decide(self, decision: int) -> None:
        """Decide the current call site: 1 to inline, 0 not to.

        Raises:
          CompilerError: the compiler does not read the decisions.
        """
        self._compilation.advise(decision)

    def result(self) -> CompiledModule:
        """Return the whole compile, once `next_row` has returned None.

        Raises:
          CompilerError: the compiler's output is not an object file.
        """
        features = np.array(self._rows, np.int64).reshape(len(self._rows), len(self._tracker.names))
        return dataclasses.replace(
            self._compilation.result(), features=features, names=tuple(self._functions)
        )

    def close(self) -> None:
        """End the compile and release its resources; may be called again."""
        self._compilation.close()


def compile_under(
    policy: Policy, compiler: Compiler, module: Module, variation: Variation = POLICY_ALONE
) -> CompiledModule:
    """Compile a module under a policy, except where `variation` says otherwise.

    Raises:
      CompilerError: the compiler failed, died or hung.
      UserError: the compiler does not offer a feature that the policy needs.
    """
    names = feature_names(compiler.announced)
    # A policy refuses features that it cannot decide by, wherever it would decide.
    decide = row_by_row(policy.begin(module.name, names))
    if isinstance(compiler, PluginClang):
        varied = None if variation == POLICY_ALONE else variation.to_json()
        if (compiled := compiler.compile_inside(policy, module, names, varied)) is not None:
            return compiled
    site_names = SiteNames()
    step = 0
    with contextlib.closing(CompileEpisode(compiler, module)) as episode:
        while (row := episode.next_row()) is not None:
            assert episode.site is not None
            key = site_names.name(episode.site.caller, episode.site.callee)
            decision, default = decide(row, step), int(episode.site.default)
            episode.decide(variation.action(decision, default, key, step))
            step += 1
        return episode.result()
