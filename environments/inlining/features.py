"""What a policy sees at a call site: the channel's features, and features derived from them.

The channel describes one call site at a time, without its history. It leaves out two things that
strongly affect what inlining costs or saves. One is the callee's linkage: whether the callee's body
can be dropped once its last call is inlined. The other is what was decided at its other call sites.
`FeatureTracker` follows one compile and adds both.

Callee and caller are known before the decision only if the compiler names them (see
`compilation.CallSite`). If it does not, the features that need a name are `UNKNOWN`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from environments.inlining.compilers.compilation import DEFAULT_FEATURE, UNKNOWN, CallSite

_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1

# Part of the key of kept compiles. Raise it whenever the meaning of a derived feature changes.
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
    """Return the names of a feature vector, in order, for a channel that announces `announced`."""
    own = tuple(name for name in announced if name not in DERIVED_FEATURES)
    return own + tuple(DERIVED_FEATURES)


@dataclasses.dataclass(slots=True)
class _Function:
    """What one compile has shown about a function so far."""

    called: int = 0  # decided call sites that call it
    called_inlined: int = 0
    calling: int = 0  # decided call sites inside it
    calling_inlined: int = 0
    users: int | None = None  # its uses in LLVM's last count
    inlined_when_counted: int = 0  # `called_inlined` when `users` last changed
    first_blocks: int | None = None  # its basic blocks at the first call site inside it
    last_blocks: int = UNKNOWN


class FeatureTracker:
    """Turns the call sites of one compile into feature vectors.

    Args:
      announced: feature names of the channel's header, in order.
    """

    def __init__(self, announced: tuple[str, ...]) -> None:
        self.names = feature_names(announced)
        # Some channels announce LLVM's own decision, which is among the derived features.
        self._extra = [k for k, name in enumerate(announced) if name in DERIVED_FEATURES]
        self._users = announced.index("callee_users")
        self._blocks = announced.index("caller_basic_block_count")
        self._callee_blocks = self.names.index("callee_basic_block_count")
        self._functions: dict[str, _Function] = {}
        self._caller: _Function | None = None
        self._num_decisions = 0
        self._num_inlined = 0

    def observe(self, site: CallSite, linkage: Mapping[str, str]) -> list[int]:
        """Return the feature vector of a call site: F values in the order of `names`, in 32 bits.

        Args:
          site: the call site, before its decision.
          linkage: linkage of the module's functions, by name.
        """
        values = list(map(int, site.features))
        for place in self._extra:
            del values[place]
        callee, caller = site.callee, site.caller
        if callee is not None and values[self._callee_blocks] == UNKNOWN:
            # LLVM goes bottom-up: most call sites inside the callee have been decided by now.
            values[self._callee_blocks] = self._function(callee).last_blocks
        kind = None if callee is None else linkage.get(callee)
        values.append(int(site.default))
        values += _groups(kind)
        values += _groups(None if caller is None else linkage.get(caller))[:2]
        values.append(UNKNOWN if callee is None else int(callee == caller))
        values += [UNKNOWN] * 6 if callee is None else self._of_callee(callee, site, kind)
        values += self._of_caller(caller, site)
        values += (self._num_decisions, self._num_inlined)
        # The store packs features into 32 bits, and a policy must see the same values as are kept.
        if max(values) > _INT32_MAX or min(values) < _INT32_MIN:
            return [min(max(value, _INT32_MIN), _INT32_MAX) for value in values]
        return values

    def record(self, decision: int, callee: str | None) -> None:
        """Record the decision at the last call site.

        Args:
          decision: 1 if the call site was inlined.
          callee: name of the function called, as known after the decision; None if unknown.
        """
        self._num_decisions += 1
        self._num_inlined += decision
        if callee is not None:
            function = self._function(callee)
            function.called += 1
            function.called_inlined += decision
        if self._caller is not None:
            self._caller.calling += 1
            self._caller.calling_inlined += decision

    def _function(self, name: str) -> _Function:
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = _Function()
        return function

    def _of_callee(self, name: str, site: CallSite, kind: str | None) -> tuple[int, ...]:
        function = self._function(name)
        seen, inlined = function.called, function.called_inlined
        uses = _uses(function, int(site.features[self._users])) - (kind not in _LOCAL)
        undecided = uses - (seen - inlined)
        last = int(uses == 1 and kind in _DROPPABLE)
        return seen, inlined, seen - inlined, undecided, last, function.calling_inlined

    def _of_caller(self, name: str | None, site: CallSite) -> tuple[int, ...]:
        if name is None:
            self._caller = None
            return UNKNOWN, UNKNOWN, UNKNOWN
        function = self._caller = self._function(name)
        blocks = int(site.features[self._blocks])
        if function.first_blocks is None:
            function.first_blocks = blocks
        function.last_blocks = blocks
        return function.calling, function.calling_inlined, blocks - function.first_blocks


def _uses(function: _Function, counted: int) -> int:
    """Return a function's number of uses now: LLVM's count less the call sites inlined since."""
    # LLVM counts a function's uses once, adds one if other modules may call the function, and keeps
    # the count while call sites disappear. If the count changes, LLVM has counted again.
    if function.users != counted:
        function.users, function.inlined_when_counted = counted, function.called_inlined
    return counted - (function.called_inlined - function.inlined_when_counted)


@functools.cache
def _groups(linkage: str | None) -> tuple[int, int, int]:
    """Return whether functions of this linkage are local, linkonce and droppable, each 0 or 1."""
    if linkage is None:
        return UNKNOWN, UNKNOWN, UNKNOWN
    return int(linkage in _LOCAL), int(linkage in _ONCE), int(linkage in _DROPPABLE)


@dataclasses.dataclass(frozen=True)
class Scope:
    """The call sites of a scope feature that LLVM by itself would not inline.

    What LLVM inlines at -Oz makes the caller smaller, by its estimate; to refuse it seldom pays,
    and LLVM names the functions of such a site only after its decision.

    Attributes:
      places: positions in a row of features of the scope feature and of LLVM's own decision; None
        if all call sites are in the scope, also those that LLVM inlines.
    """

    places: tuple[int, int] | None

    @classmethod
    def of(cls, scope_feature: str, names: Sequence[str]) -> Scope:
        """Return the scope of a feature among `names`; "" for all call sites."""
        if not scope_feature:
            return cls(None)
        return cls((names.index(scope_feature), names.index(DEFAULT_FEATURE)))

    def holds(self, features: np.ndarray) -> np.ndarray:
        """Return for each of T rows, int64 [T, F], whether its call site is in the scope."""
        if self.places is None:
            return np.ones(len(features), bool)
        place, default_place = self.places
        inside: np.ndarray = features[:, place] == 1
        return inside & (features[:, default_place] == 0)

    def default_outside(self, row: Sequence[int]) -> int | None:
        """Return LLVM's own decision if the row's call site is out of the scope, else None."""
        if self.places is None:
            return None
        place, default_place = self.places
        default = row[default_place]
        return default if default or row[place] != 1 else None
