"""Find what each of many changed decisions saved, by comparing two compiles function by function.

A changed decision at a call site (caller F, callee G) changes the bytes of F. It also changes the
bytes of G, which may be removed, and seldom anything else. So if one compile changes many decisions
at call sites that share no function, the change in each function's bytes belongs to one decision,
and this one compile gives the Δbytes of all decisions.

Sometimes a function changes that no decision names. If F was itself inlined into that function, the
change belongs to F's decision. The candidates are the decisions whose F the function reaches by
calls, and those whose G reaches the function by calls. If there is one candidate, the change counts
for it; if there are several, their Δbytes are unknown. If there is none, but the function calls a
G, the change belongs to G's decision: G has one use less than before, so LLVM may now inline this
other call of G.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

# Part of the key under which results of exploration are kept. Raise it whenever the way of finding
# a Δbytes changes.
ATTRIBUTION = 2


@dataclasses.dataclass(frozen=True)
class ChangedSite:
    """A call site whose decision differs between two compiles."""

    caller: str
    callee: str


def attribute(
    sites: Sequence[ChangedSite],
    before: Mapping[str, float],
    after: Mapping[str, float],
    calls: Mapping[str, Sequence[str]],
) -> list[float | None]:
    """Return the Δbytes of each changed decision.

    Args:
      sites: the changed decisions; no function may be caller or callee of two of them.
      before: bytes by function, with the decisions as they were.
      after: bytes by function, with all of these decisions changed.
      calls: direct calls: callees by name of the caller.

    Returns:
      For each site the change in bytes that it caused (negative: smaller), or None if its share
      cannot be separated from that of another site.
    """
    owner = {name: k for k, site in enumerate(sites) for name in (site.caller, site.callee)}
    deltas = {
        name: after.get(name, 0) - before.get(name, 0)
        for name in before.keys() | after.keys()
        if after.get(name, 0) != before.get(name, 0)
    }
    shares: list[float] = [0] * len(sites)
    unknown: set[int] = set()
    called_by = _reverse(calls)
    reached = _reaching(sites, called_by, calls, set(deltas) - owner.keys())
    for name, delta in deltas.items():
        owners = {owner[name]} if name in owner else reached[name]
        if len(owners) == 1:
            shares[next(iter(owners))] += delta
        else:
            unknown |= owners
    return [None if k in unknown else share for k, share in enumerate(shares)]


def disjoint_rounds(
    sites: Sequence[ChangedSite], num_rounds: int, per_round: int
) -> list[list[int]]:
    """Divide call sites into rounds in which no function occurs twice.

    Args:
      sites: call sites in order of preference.
      num_rounds: largest number of rounds.
      per_round: largest number of sites in one round.

    Returns:
      Indices into `sites` for each round; sites that fit into no round are left out.
    """
    rounds: list[list[int]] = []
    used: list[set[str]] = []
    for k, site in enumerate(sites):
        touched = {site.caller, site.callee}
        for members, taken in zip(rounds, used, strict=True):
            if len(members) < per_round and not touched & taken:
                members.append(k)
                taken |= touched
                break
        else:
            if len(rounds) < num_rounds:
                rounds.append([k])
                used.append(touched)
    return rounds


def _reverse(calls: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    called_by = collections.defaultdict(list)
    for caller, callees in calls.items():
        for callee in callees:
            called_by[callee].append(caller)
    return called_by


def _reaching(
    sites: Sequence[ChangedSite],
    called_by: Mapping[str, Sequence[str]],
    calls: Mapping[str, Sequence[str]],
    wanted: set[str],
) -> dict[str, set[int]]:
    """Return, for each wanted function, the sites that may have changed it.

    These are the sites whose caller the function reaches by calls, and those whose callee reaches
    the function. If there are none, they are the sites whose callee the function calls.
    """
    found: dict[str, set[int]] = {name: set() for name in wanted}
    if not wanted:
        return found
    for k, site in enumerate(sites):
        for start, edges in ((site.caller, called_by), (site.callee, calls)):
            for name in _closure(start, edges) & wanted:
                found[name].add(k)
    sites_of = {site.callee: k for k, site in enumerate(sites)}
    for name, owners in found.items():
        if not owners:
            owners |= {sites_of[callee] for callee in calls.get(name, ()) if callee in sites_of}
    return found


def _closure(start: str, edges: Mapping[str, Sequence[str]]) -> set[str]:
    seen, waiting = {start}, [start]
    while waiting:
        for name in edges.get(waiting.pop(), ()):
            if name not in seen:
                seen.add(name)
                waiting.append(name)
    return seen
