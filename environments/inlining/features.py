"""What a policy sees at a call site: the channel's features, and what this file derives from them.

The channel tells of one call site at a time and forgets; two things that it does not tell decide
much of what inlining costs or saves: whether the callee's body can be dropped once its last call is
inlined (its linkage), and what was decided at its other call sites. `FeatureTracker` follows one
compile and adds both.

Callee and caller are known before the decision only where the compiler names them (see
`compilation.CallSite`); elsewhere the features that need a name are `UNKNOWN`.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping

import numpy as np

from environments.inlining.compilation import CallSite

UNKNOWN = -1
_INT32 = np.iinfo(np.int32)

# Part of the key of kept compiles: to be raised whenever a derived feature means something else.
DERIVATION = 2

_LOCAL = frozenset({"internal", "private"})
_ONCE = frozenset({"linkonce", "linkonce_odr", "linkonce_any"})
_DROPPABLE = _LOCAL | _ONCE | {"available_externally"}

DERIVED_FEATURES: dict[str, str] = {
    "inlining_default": "1 where LLVM's -Oz heuristic inlines",
    "callee_is_local": "1 if the callee has internal or private linkage",
    "callee_is_linkonce": "1 if the callee is linkonce: C++ inline functions and templates",
    "callee_is_droppable": "1 if the callee's body goes away once nothing uses it",
    "caller_is_local": "1 if the caller has internal or private linkage",
    "caller_is_linkonce": "1 if the caller is linkonce",
    "callee_is_caller": "1 if the call is directly recursive",
    "callee_sites_seen": "earlier call sites of this callee in this compile",
    "callee_sites_inlined": "how many of them were inlined",
    "callee_sites_refused": "how many of them were not",
    "callee_undecided_users": "uses of the callee in this module, less its decided call sites",
    "callee_is_last_use": "1 if this is the only use left of a droppable callee",
    "callee_inlined_into": "call sites inlined into the callee itself",
    "caller_sites_seen": "earlier call sites in this caller",
    "caller_sites_inlined": "how many of them were inlined",
    "caller_growth": "basic blocks that the caller has gained since its first call site",
    "decisions_so_far": "call sites decided in this compile",
    "inlined_so_far": "how many of them were inlined",
}


def feature_names(announced: tuple[str, ...]) -> tuple[str, ...]:
    """Names of a feature vector, in order, for a channel that announces `announced`."""
    own = tuple(name for name in announced if name not in DERIVED_FEATURES)
    return own + tuple(DERIVED_FEATURES)


class FeatureTracker:
    """Turns the call sites of one compile into feature vectors.

    Args:
      announced: feature names of the channel's header, in order.
    """

    def __init__(self, announced: tuple[str, ...]) -> None:
        self.names = feature_names(announced)
        # LLVM's own decision, which some announce, is among the derived ones.
        self._extra = [k for k, name in enumerate(announced) if name in DERIVED_FEATURES]
        self._seen: collections.Counter[str] = collections.Counter()
        self._inlined: collections.Counter[str] = collections.Counter()
        self._caller_seen: collections.Counter[str] = collections.Counter()
        self._caller_inlined: collections.Counter[str] = collections.Counter()
        self._first_blocks: dict[str, int] = {}
        self._counted: dict[str, tuple[int, int]] = {}
        self._caller: str | None = None
        self._num_decisions = 0
        self._num_inlined = 0

    def observe(self, site: CallSite, linkage: Mapping[str, str]) -> np.ndarray:
        """Feature vector of a call site, int64 [F], in the order of `names`.

        Args:
          site: the call site, before its decision.
          linkage: linkage by name of the module's functions.
        """
        self._caller = site.caller
        values = list(map(int, site.features.item()))
        for place in self._extra:
            del values[place]
        values.append(int(site.default))
        values += self._linkage(site, linkage)
        values += self._callee(site, linkage)
        values += self._of_caller(site)
        values += [self._num_decisions, self._num_inlined]
        # The store packs them into 32 bits: what is recalled must be what was seen.
        return np.minimum(np.maximum(np.array(values, np.int64), _INT32.min), _INT32.max)

    def record(self, decision: int, callee: str | None) -> None:
        """Takes the decision at the last call site.

        Args:
          decision: 1 if it was inlined.
          callee: the function called, as known when the decision was carried out.
        """
        self._num_decisions += 1
        self._num_inlined += decision
        if callee is not None:
            self._seen[callee] += 1
            self._inlined[callee] += decision
        if self._caller is not None:
            self._caller_seen[self._caller] += 1
            self._caller_inlined[self._caller] += decision

    def _linkage(self, site: CallSite, linkage: Mapping[str, str]) -> list[int]:
        callee = linkage.get(site.callee or "")
        caller = linkage.get(site.caller or "")
        same = UNKNOWN if site.callee is None else int(site.callee == site.caller)
        return [
            _member(callee, _LOCAL),
            _member(callee, _ONCE),
            _member(callee, _DROPPABLE),
            _member(caller, _LOCAL),
            _member(caller, _ONCE),
            same,
        ]

    def _callee(self, site: CallSite, linkage: Mapping[str, str]) -> list[int]:
        if site.callee is None:
            return [UNKNOWN] * 6
        seen = self._seen[site.callee]
        inlined = self._inlined[site.callee]
        kind = linkage.get(site.callee, "")
        uses = self._uses(site, inlined) - (kind not in _LOCAL)
        undecided = uses - (seen - inlined)
        last = int(uses == 1 and kind in _DROPPABLE)
        into = self._caller_inlined[site.callee]
        return [seen, inlined, seen - inlined, undecided, last, into]

    def _uses(self, site: CallSite, inlined: int) -> int:
        """Uses of the callee now: what LLVM counted, less what has been inlined since.

        LLVM counts a function's uses once, with one more if other modules may call it, and keeps
        the figure while call sites go away. Where its figure changes it has counted anew.
        """
        assert site.callee is not None
        counted = int(site.features["callee_users"])
        if self._counted.get(site.callee, (None,))[0] != counted:
            self._counted[site.callee] = (counted, inlined)
        return counted - (inlined - self._counted[site.callee][1])

    def _of_caller(self, site: CallSite) -> list[int]:
        if site.caller is None:
            return [UNKNOWN] * 3
        blocks = int(site.features["caller_basic_block_count"])
        growth = blocks - self._first_blocks.setdefault(site.caller, blocks)
        return [self._caller_seen[site.caller], self._caller_inlined[site.caller], growth]


def _member(linkage: str | None, group: frozenset[str]) -> int:
    return UNKNOWN if linkage is None else int(linkage in group)
