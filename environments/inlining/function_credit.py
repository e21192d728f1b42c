"""The credit of an episode's decisions: the bytes of the functions that a decision may change.

A decision at a call site (caller F, callee G) changes the bytes of F, and those of G, which may go
away. Where F itself was inlined, and so is no longer in the object, its body is part of what called
it, and these functions count too. That leaves out what is changed further away, such as other calls
of G, which LLVM may judge differently when one use is left.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence

from environments.credit import Credit
from environments.inlining.compilers.compilation import Names

_WHOLE = ""
_ALL = frozenset({_WHOLE})


def function_credit(
    names: Names,
    decisions: Sequence[int],
    bytes_of_function: Mapping[str, float],
    calls: Mapping[str, Sequence[str]],
) -> Credit:
    """Return the credit of decisions; a function is worth its bytes, less than 0.

    Args:
      names: caller and callee of each call site; both None where LLVM does not name them.
      decisions: 1 where a call site was inlined.
      bytes_of_function: bytes of each function in the object.
      calls: direct calls before inlining: callees by name of the caller.

    Returns:
      Credit in bytes. Call sites without names answer for all functions together.
    """
    called_by = callers_of(calls)
    for (caller, callee), decision in zip(names, decisions, strict=True):
        if decision and caller is not None and callee is not None:
            called_by[callee].add(caller)
    of_absent = {
        name: callers for name, callers in called_by.items() if name not in bytes_of_function
    }
    # The functions that may hold the body of each caller.
    holders = {
        caller: closure({caller}, of_absent) for caller in {caller for caller, _ in names if caller}
    }
    parts = [
        _ALL if caller is None or callee is None else holders[caller] | {callee}
        for caller, callee in names
    ]
    values = {name: -size for name, size in bytes_of_function.items()}
    return Credit({**values, _WHOLE: sum(values.values())}, parts)


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
