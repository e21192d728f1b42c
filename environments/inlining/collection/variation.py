"""Variations: what a compile does otherwise than a policy, call site by call site.

A variation names a call site by its caller, its callee and how often that pair has been met. The
site's place in the compile would not do, because it moves when earlier decisions change. LLVM names
both functions before the decision only where its own decision is not to inline (see
`compilation.CallSite`). A site that LLVM inlines is found by its place: up to the first changed
decision, all compiles are the same. So a variation can change such a site if nothing is changed
before it. It can change several places if each is of a compile with all changes before that place.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

from environments.inlining.compilers.compilation import Names

SiteKey = tuple[str, str, int]
"""(caller, callee, how often this pair has been met, this time included)."""


@dataclasses.dataclass(frozen=True)
class Variation:
    """What one compile does otherwise than a policy.

    Attributes:
      flips: named call sites at which the other action is played.
      callees: functions with the action, 1 to inline, that is played at all named calls of them.
      restored: functions in which LLVM's own decision is played at all named call sites.
      steps: numbers of call sites at which the other action is played.
    """

    flips: frozenset[SiteKey] = frozenset()
    callees: frozenset[tuple[str, int]] = frozenset()
    restored: frozenset[str] = frozenset()
    steps: frozenset[int] = frozenset()

    def action(self, decision: int, default: int, key: SiteKey | None, step: int) -> int:
        """Return the action at a call site, from the policy's decision and LLVM's own."""
        if step in self.steps or key in self.flips:
            return 1 - decision
        if key is None:
            return decision
        for action in (0, 1):
            if (key[1], action) in self.callees:
                return action
        return default if key[0] in self.restored else decision

    def to_json(self) -> dict[str, Any]:
        """Return the variation as a plugin reads it; see plugin/recording.h."""
        return {
            "flips": sorted(map(list, self.flips)),
            "callees": sorted(map(list, self.callees)),
            "restored": sorted(self.restored),
            "steps": sorted(self.steps),
        }


POLICY_ALONE = Variation()
"""Follows the policy everywhere."""


def site_keys(names: Names) -> tuple[SiteKey | None, ...]:
    """Return the name of each call site of a compile, from caller and callee of each."""
    site_names = SiteNames()
    return tuple(site_names.name(caller, callee) for caller, callee in names)


class SiteNames:
    """Names the call sites of one compile, in their order."""

    def __init__(self) -> None:
        self._seen: collections.Counter[tuple[str, str]] = collections.Counter()

    def name(self, caller: str | None, callee: str | None) -> SiteKey | None:
        """Return the next site's name; None if LLVM does not name its caller and callee."""
        if caller is None or callee is None:
            return None
        self._seen[caller, callee] += 1
        return (caller, callee, self._seen[caller, callee])
