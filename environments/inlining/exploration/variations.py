"""Variations: compiles that follow a policy except at some call sites, with the bytes of functions.

A variation names a call site by its caller, its callee and how often that pair has been met. The
site's place in the compile would not do, because it moves when earlier decisions change. LLVM names
both functions before the decision only where its own decision is not to inline (see
`compilation.CallSite`). A site that LLVM inlines is found by its place: up to the first changed
decision, all compiles are the same. So a variation can change one such site, and nothing before it.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping

from environments.inlining.collection.episode import CompileEpisode
from environments.inlining.collection.store import Trajectory
from environments.inlining.compilers.compilation import CallSite
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.compilers.object_size import read_function_bytes
from environments.inlining.corpus.modules import Module
from environments.inlining.features import feature_names
from environments.inlining.heuristics import Policy, one_at_a_time
from environments.inlining.linking.objective import OBJECT, Objective

SiteKey = tuple[str, str, int]
"""(caller, callee, how often this pair has been met, this time included)."""


@dataclasses.dataclass(frozen=True)
class Variation:
    """What one compile does otherwise than a policy.

    Attributes:
      flips: named call sites at which the other action is played.
      restored: functions in which LLVM's own decision is played at all named call sites.
      step: number of a call site at which the other action is played.
    """

    flips: frozenset[SiteKey] = frozenset()
    restored: frozenset[str] = frozenset()
    step: int | None = None

    def action(self, decision: int, default: int, key: SiteKey | None, step: int) -> int:
        """Return the action at a call site.

        Args:
          decision: the policy's decision.
          default: LLVM's own decision.
          key: name of the call site, if it has one.
          step: its number.
        """
        if step == self.step or key in self.flips:
            return 1 - decision
        return default if key is not None and key[0] in self.restored else decision


POLICY_ALONE = Variation()
"""Follows the policy everywhere."""


@dataclasses.dataclass(frozen=True)
class DetailedCompile:
    """A compile under a policy, with all that exploration needs to know about it.

    Attributes:
      trajectory: the T call sites, their decisions and the sizes of the object.
      keys: name of each of the T call sites; None if LLVM does not give it before the decision.
      cost: what the object costs, in bytes.
      function_bytes: the same by name of the function, without what functions share.
    """

    trajectory: Trajectory
    keys: tuple[SiteKey | None, ...]
    cost: float
    function_bytes: Mapping[str, float]


class SiteNames:
    """Names the call sites of one compile, in their order."""

    def __init__(self) -> None:
        self._seen: collections.Counter[tuple[str, str]] = collections.Counter()

    def name(self, site: CallSite) -> SiteKey | None:
        """Return the next site's name; None if LLVM does not name its caller and callee."""
        if site.caller is None or site.callee is None:
            return None
        pair = (site.caller, site.callee)
        self._seen[pair] += 1
        return (*pair, self._seen[pair])


def compile_in_detail(
    compiler: Compiler,
    module: Module,
    policy: Policy,
    variation: Variation = POLICY_ALONE,
    objective: Objective = OBJECT,
) -> DetailedCompile:
    """Compile a module under a policy, except where `variation` says otherwise.

    Raises:
      CompilerError: the compiler failed, died or hung.
    """
    decide = one_at_a_time(policy.begin(module.name, feature_names(compiler.announced)))
    site_names = SiteNames()
    keys: list[SiteKey | None] = []
    with CompileEpisode(compiler, module) as episode:
        while (row := episode.next_row()) is not None:
            assert episode.site is not None
            key = site_names.name(episode.site)
            decision = decide(row, len(keys))
            episode.decide(variation.action(decision, int(episode.site.default), key, len(keys)))
            keys.append(key)
        trajectory = episode.trajectory()
        worth = objective.of_project(module.project)
        return DetailedCompile(
            trajectory,
            tuple(keys),
            objective.cost(module.project, trajectory.size),
            read_function_bytes(episode.compilation.result().data, worth),
        )
