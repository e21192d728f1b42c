"""What each of many changed decisions saved: the differences of two compiles, function by function.

A changed decision at a call site (caller F, callee G) changes the bytes of F, and those of G, which
may go away; seldom anything else. When many decisions are changed in one compile at call sites that
share no function, each change of a function's bytes therefore belongs to one decision, and one
compile gives the Δbytes of all of them. Where a function changed that no decision names, because F
was itself inlined into it, it belongs to the decisions whose F it reaches by calls: if that is one,
it is counted there; if there are several, their Δbytes are unknown. Where it reaches no F but calls
a G, it is the next to have its call of G inlined, because G has one use less than it had.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

# Part of the key of what exploration found: to be raised whenever a Δbytes is told another way.
ATTRIBUTION = 1


@dataclasses.dataclass(frozen=True)
class ChangedSite:
    """A call site whose decision differs between two compiles."""

    caller: str
    callee: str


def attribute(
    sites: Sequence[ChangedSite],
    before: Mapping[str, int],
    after: Mapping[str, int],
    calls: Mapping[str, Sequence[str]],
) -> list[int | None]:
    """Δbytes of each changed decision.

    Args:
      sites: the changed decisions; no function may be caller or callee of two of them.
      before: bytes by function, with the decisions as they were.
      after: bytes by function, with all of them changed.
      calls: direct calls by name of the calling function.

    Returns:
      For each site the change in bytes that it caused (negative: smaller), or None where its share
      cannot be told from another's.
    """
    owner = {name: k for k, site in enumerate(sites) for name in (site.caller, site.callee)}
    deltas = {
        name: after.get(name, 0) - before.get(name, 0)
        for name in before.keys() | after.keys()
        if after.get(name, 0) != before.get(name, 0)
    }
    shares: list[int] = [0] * len(sites)
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
    """Divides call sites into rounds in which no function occurs twice.

    Args:
      sites: in order of preference.
      num_rounds: rounds at most.
      per_round: sites of one round at most.

    Returns:
      Indices into `sites` for each round; sites that fit nowhere are left out.
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
    """For each wanted function, the sites whose caller it reaches or whose callee reaches it.

    Where there are none, those whose callee it calls.
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
