"""Compile a module under a policy: inside clang if it can be put there, else by the channel.

Both roads give the same decisions, features and bytes. A clang with the policy inside takes about
as long as a plain one; the channel waits for an answer at each call site.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from environments.inlining.collection.episode import CompileEpisode
from environments.inlining.collection.store import Trajectory
from environments.inlining.collection.variation import (
    POLICY_ALONE,
    SiteKey,
    SiteNames,
    Variation,
)
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.corpus.modules import Module
from environments.inlining.features import feature_names
from environments.inlining.heuristics import Policy, one_at_a_time
from environments.inlining.plugin.compiler import PluginClang

Names = tuple[tuple[str | None, str | None], ...]


@dataclasses.dataclass(frozen=True)
class Played:
    """One compile under a policy, with T call sites.

    Attributes:
      trajectory: the features, the decisions and the sizes of the object.
      names_fn: returns `names`, which few ask for.
      data: the object file.
    """

    trajectory: Trajectory
    names_fn: Callable[[], Names]
    data: bytes

    @functools.cached_property
    def names(self) -> Names:
        """Caller and callee of each of the T call sites, if LLVM names them before the decision."""
        return self.names_fn()

    @functools.cached_property
    def keys(self) -> tuple[SiteKey | None, ...]:
        """Name of each of the T call sites, if it has one."""
        site_names = SiteNames()
        return tuple(site_names.name(*names) for names in self.names)


def compile_under(
    policy: Policy, compiler: Compiler, module: Module, variation: Variation = POLICY_ALONE
) -> Played:
    """Compile a module under a policy, except where `variation` says otherwise.

    Raises:
      CompilerError: the compiler failed, died or hung.
      UserError: the compiler does not offer a feature that the policy needs.
    """
    names = feature_names(compiler.announced)
    decide = one_at_a_time(policy.begin(module.name, names))
    if isinstance(compiler, PluginClang):
        varied = None if variation == POLICY_ALONE else variation.to_json()
        if (recorded := compiler.compile_inside(policy, module, names, varied)) is not None:
            trajectory = Trajectory(
                module.name, names, recorded.features, recorded.decisions, recorded.compiled.size
            )
            return Played(trajectory, recorded.names, recorded.compiled.data)
    site_names = SiteNames()
    functions: list[tuple[str | None, str | None]] = []
    with CompileEpisode(compiler, module) as episode:
        while (row := episode.next_row()) is not None:
            assert episode.site is not None
            key = site_names.name(episode.site.caller, episode.site.callee)
            step, default = len(functions), int(episode.site.default)
            episode.decide(variation.action(decide(row, step), default, key, step))
            functions.append((episode.site.caller, episode.site.callee))
        data = episode.compilation.result().data
        return Played(episode.trajectory(), lambda: tuple(functions), data)
