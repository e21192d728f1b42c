"""The calls between a module's functions, followed in either direction."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping


def callers_of(calls: Mapping[str, Iterable[str]]) -> collections.defaultdict[str, set[str]]:
    """Return the callers of each function that is called, from callees by name of the caller."""
    callers: collections.defaultdict[str, set[str]] = collections.defaultdict(set)
    for caller, callees in calls.items():
        for callee in callees:
            callers[callee].add(caller)
    return callers


def closure(starts: Iterable[str], edges: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the names that are reached along edges from some names, these included."""
    seen = set(starts)
    waiting = list(seen)
    while waiting:
        for name in edges.get(waiting.pop(), ()):
            if name not in seen:
                seen.add(name)
                waiting.append(name)
    return seen
