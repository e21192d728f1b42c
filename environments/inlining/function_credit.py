"""The credit of an episode's decisions: the bytes of the functions that a decision may change.

A decision at a call site (caller F, callee G) changes the bytes of F, and those of G, which may go
away. Where F itself was inlined, and so is no longer in the object, its body is part of what called
it, and these functions count too. That leaves out what is changed further away, such as other calls
of G, which LLVM may judge differently when one use is left.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence

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
    called_by: dict[str, set[str]] = collections.defaultdict(set)
    for caller, callees in calls.items():
        for callee in callees:
            called_by[callee].add(caller)
    for (site_caller, site_callee), decision in zip(names, decisions, strict=True):
        if decision and site_caller is not None and site_callee is not None:
            called_by[site_callee].add(site_caller)
    holders: dict[str, frozenset[str]] = {}
    parts = []
    for site_caller, site_callee in names:
        if site_caller is None or site_callee is None:
            parts.append(_ALL)
            continue
        if site_caller not in holders:
            holders[site_caller] = _holders(site_caller, bytes_of_function, called_by)
        parts.append(holders[site_caller] | {site_callee})
    values = {name: -size for name, size in bytes_of_function.items()}
    return Credit({**values, _WHOLE: sum(values.values())}, parts)


def _holders(
    function: str, bytes_of_function: Mapping[str, float], called_by: Mapping[str, set[str]]
) -> frozenset[str]:
    """Return a function, and if it is not in the object, the functions that may hold its body."""
    holders = {function}
    waiting = [function]
    while waiting:
        name = waiting.pop()
        if name in bytes_of_function:
            continue
        for caller in called_by.get(name, ()):
            if caller not in holders:
                holders.add(caller)
                waiting.append(caller)
    return frozenset(holders)
