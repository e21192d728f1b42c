"""Changes of a policy's compile: which to try together, and what each of them saved.

A *single* change plays the other action at one call site. A *joint* change takes back all that the
policy does otherwise than LLVM in one function, or along a chain of calls from it. A *callee's*
change plays one action at all calls of one function. What a decision saves alone and what it saves
together with its neighbours can differ in sign: a function goes away only when its last call is
inlined, and code that two callees share is folded only when both are.

A changed decision at a call site (caller F, callee G) changes the bytes of F. It also changes the
bytes of G, which may be removed, and seldom anything else. So if one compile makes many changes
that share no function, the difference in each function's bytes belongs to one change, and this one
compile gives the Δbytes of all of them.

Sometimes a function differs that no change names. If F was itself inlined into that function, the
difference belongs to F's change. The candidates are the changes whose F the function reaches by
calls, and the changes whose G reaches the function by calls. If there is one candidate, the
difference counts for it; if there are several, their Δbytes are unknown. If there is none, but the
function calls a G, the difference belongs to G's change: G has one use less than before, so LLVM
may now inline this other call of G.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

from environments.inlining.collection.store import Trajectory
from environments.inlining.collection.variation import SiteKey, Variation
from environments.inlining.function_credit import callers_of, closure

# Part of the key under which results of exploration are kept. Raise it whenever the way of finding
# a Δbytes changes.
ATTRIBUTION = 3
_MIN_ROUNDS = 2
_MIN_JOINT = 2
"""A joint change takes back at least this many decisions; one alone is a single change."""


@dataclasses.dataclass(frozen=True)
class Change:
    """Call sites whose decisions are changed together.

    Attributes:
      steps: numbers of the call sites in the policy's compile.
      callers: the functions that contain the call sites.
      callees: the functions that are called there. Where LLVM names neither, the change needs a
        compile of its own.
      variation: what makes the change.
    """

    steps: tuple[int, ...]
    callers: frozenset[str]
    callees: frozenset[str]
    variation: Variation

    @property
    def functions(self) -> frozenset[str]:
        """The callers and the callees."""
        return self.callers | self.callees


def single_change(step: int, key: SiteKey | None) -> Change:
    """Return the change of a call site, given its number and its name."""
    if key is None:
        return Change((step,), frozenset(), frozenset(), Variation(steps=frozenset({step})))
    caller, callee, _ = key
    variation = Variation(flips=frozenset({key}))
    return Change((step,), frozenset({caller}), frozenset({callee}), variation)


def joint_changes(base: Trajectory, keys: Sequence[SiteKey | None]) -> list[Change]:
    """Return the joint changes of a compile: by function, then by chain, the largest first.

    Only calls that the policy inlines and LLVM does not are taken back; where it is the other way
    round, the caller is not known.

    Args:
      base: the policy's compile.
      keys: the names of its call sites.
    """
    steps_in: dict[str, list[int]] = collections.defaultdict(list)
    callees_in: dict[str, set[str]] = collections.defaultdict(set)
    departs = base.decisions != base.column("inlining_default")
    for step, key in enumerate(keys):
        if key is not None and departs[step]:
            steps_in[key[0]].append(step)
            callees_in[key[0]].add(key[1])
    restored = {frozenset({caller}) for caller in steps_in}
    chains = {frozenset(closure({caller}, callees_in) & callees_in.keys()) for caller in steps_in}
    changes = []
    for callers in (*_by_size(restored, steps_in), *_by_size(chains - restored, steps_in)):
        steps = tuple(sorted(step for caller in callers for step in steps_in[caller]))
        if len(steps) >= _MIN_JOINT:
            callees = frozenset(callee for caller in callers for callee in callees_in[caller])
            changes.append(Change(steps, callers, callees, Variation(restored=callers)))
    return changes


def callee_changes(base: Trajectory, keys: Sequence[SiteKey | None]) -> Iterator[Change]:
    """Yield the change of each function that LLVM leaves several calls of, in their order.

    All these calls are inlined; if the policy inlines all of them, none is.

    Args:
      base: the policy's compile.
      keys: the names of its call sites, None for those not to change.
    """
    steps_of: dict[str, list[int]] = collections.defaultdict(list)
    for step, key in enumerate(keys):
        if key is not None:
            steps_of[key[1]].append(step)
    for callee, steps in steps_of.items():
        action = 1 - int(base.decisions[steps].min())
        changed = tuple(step for step in steps if base.decisions[step] != action)
        if len(steps) >= _MIN_JOINT:
            callers = frozenset(key[0] for step in changed if (key := keys[step]) is not None)
            variation = Variation(callees=frozenset({(callee, action)}))
            yield Change(changed, callers, frozenset({callee}), variation)


def _by_size(groups: set[frozenset[str]], steps_in: dict[str, list[int]]) -> list[frozenset[str]]:
    def order(callers: frozenset[str]) -> tuple[int, list[str]]:
        return -sum(len(steps_in[caller]) for caller in callers), sorted(callers)

    return sorted(groups, key=order)


def plan_rounds(
    changes: Sequence[Change],
    num_rounds: int,
    per_round: int,
    decisions_per_flip: int,
    num_decisions: int,
) -> list[list[Change]]:
    """Divide changes into compiles in which no function occurs twice.

    Args:
      changes: in order of preference.
      num_rounds: largest number of compiles.
      per_round: largest number of changes in one compile.
      decisions_per_flip: a compile after the second must change at least one decision of this many.
      num_decisions: number of all decisions.

    Returns:
      The changes of each compile; what fits into none is left out.
    """
    rounds: list[list[Change]] = []
    used: list[set[str]] = []
    for change in changes:
        for members, taken in zip(rounds, used, strict=True):
            if len(members) < per_round and not change.functions & taken:
                members.append(change)
                taken |= change.functions
                break
        else:
            if len(rounds) < num_rounds:
                rounds.append([change])
                used.append(set(change.functions))
    return [
        chosen
        for number, chosen in enumerate(rounds)
        if number < _MIN_ROUNDS
        or per_round == 1
        or sum(len(change.steps) for change in chosen) * decisions_per_flip >= num_decisions
    ]


def together(changes: Sequence[Change]) -> Variation:
    """Return the variation that makes all of some changes."""
    if len(changes) == 1:
        return changes[0].variation
    variations = [change.variation for change in changes]
    return Variation(
        frozenset().union(*(variation.flips for variation in variations)),
        frozenset().union(*(variation.callees for variation in variations)),
        frozenset().union(*(variation.restored for variation in variations)),
    )


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
