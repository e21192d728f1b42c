"""Find what each of many changes saved, by comparing two compiles function by function.

A change is one call site with another decision, or several that belong together. A changed decision
at a call site (caller F, callee G) changes the bytes of F. It also changes the bytes of G, which
may be removed, and seldom anything else. So if one compile makes many changes that share no
function, the difference in each function's bytes belongs to one change, and this one compile gives
the Δbytes of all of them.

Sometimes a function differs that no change names. If F was itself inlined into that function, the
difference belongs to F's change. The candidates are the changes whose F the function reaches by
calls, and the changes whose G reaches the function by calls. If there is one candidate, the
difference counts for it; if there are several, their Δbytes are unknown. If there is none, but the
function calls a G, the difference belongs to G's change: G has one use less than before, so LLVM
may now inline this other call of G.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from environments.inlining.function_credit import callers_of, closure

# Part of the key under which results of exploration are kept. Raise it whenever the way of finding
# a Δbytes changes.
ATTRIBUTION = 3


@dataclasses.dataclass(frozen=True)
class Change:
    """Call sites whose decisions are changed together.

    Attributes:
      callers: the functions that contain the call sites.
      callees: the functions that are called there.
    """

    callers: frozenset[str]
    callees: frozenset[str]

    @classmethod
    def at(cls, caller: str, callee: str) -> Change:
        """Return the change of a single call site."""
        return cls(frozenset({caller}), frozenset({callee}))

    @property
    def functions(self) -> frozenset[str]:
        """The callers and the callees."""
        return self.callers | self.callees


UNKNOWN_PLACE = Change(frozenset(), frozenset())
"""The change of a call site whose functions are not known."""


def attribute(
    changes: Sequence[Change],
    before: Mapping[str, float],
    after: Mapping[str, float],
    calls: Mapping[str, Sequence[str]],
) -> list[float | None]:
    """Return the Δbytes of each change.

    Args:
      changes: the changes; no function may belong to two of them.
      before: bytes by function, without the changes.
      after: bytes by function, with all of them.
      calls: direct calls: callees by name of the caller.

    Returns:
      For each change the difference in bytes that it caused (negative: smaller), or None if its
      share cannot be separated from that of another one.
    """
    owner = {name: k for k, change in enumerate(changes) for name in change.functions}
    deltas = {
        name: after.get(name, 0) - before.get(name, 0)
        for name in before.keys() | after.keys()
        if after.get(name, 0) != before.get(name, 0)
    }
    shares: list[float] = [0] * len(changes)
    unknown: set[int] = set()
    reached = _reaching(changes, callers_of(calls), calls, set(deltas) - owner.keys())
    for name, delta in deltas.items():
        owners = {owner[name]} if name in owner else reached[name]
        if len(owners) == 1:
            shares[next(iter(owners))] += delta
        else:
            unknown |= owners
    return [None if k in unknown else share for k, share in enumerate(shares)]


def _reaching(
    changes: Sequence[Change],
    called_by: Mapping[str, Collection[str]],
    calls: Mapping[str, Sequence[str]],
    wanted: set[str],
) -> dict[str, set[int]]:
    """Return, for each wanted function, the changes that it may differ by (see above)."""
    changes_of: dict[str, set[int]] = {name: set() for name in wanted}
    if not wanted:
        return changes_of
    for k, change in enumerate(changes):
        for starts, edges in ((change.callers, called_by), (change.callees, calls)):
            for name in closure(starts, edges) & wanted:
                changes_of[name].add(k)
    change_of = {callee: k for k, change in enumerate(changes) for callee in change.callees}
    for name, owners in changes_of.items():
        if not owners:
            owners |= {change_of[callee] for callee in calls.get(name, ()) if callee in change_of}
    return changes_of
