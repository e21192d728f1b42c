"""Plans: which changes of a policy's compile to try, and which of them in one compile.

A *single* change plays the other action at one call site. A *joint* change takes back all that the
policy does otherwise than LLVM in one function, or along a chain of calls from it. A *callee's*
change plays one action at all calls of one function. What a decision saves alone and what it saves
together with its neighbours can differ in sign: a function goes away only when its last call is
inlined, and code that two callees share is folded only when both are.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence

from environments.inlining.collection.store import Trajectory
from environments.inlining.collection.variation import SiteKey, Variation
from environments.inlining.exploration.credit import UNKNOWN_PLACE, Change
from environments.inlining.function_credit import closure

_MIN_ROUNDS = 2
_MIN_JOINT = 2
"""A joint change takes back at least this many decisions; one alone is a single change."""


@dataclasses.dataclass(frozen=True)
class Planned:
    """A change to try.

    Attributes:
      steps: numbers of the call sites of the policy's compile whose decisions it changes.
      change: the functions of these call sites; none where LLVM does not name them, and the
        variation then needs a compile of its own.
      variation: the change itself.
    """

    steps: tuple[int, ...]
    change: Change
    variation: Variation


def single_change(step: int, key: SiteKey | None) -> Planned:
    """Return the change of a call site, given its number and its name."""
    if key is None:
        return Planned((step,), UNKNOWN_PLACE, Variation(steps=frozenset({step})))
    return Planned((step,), Change.at(*key[:2]), Variation(flips=frozenset({key})))


def joint_changes(base: Trajectory, keys: Sequence[SiteKey | None]) -> list[Planned]:
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
    planned = []
    for callers in (*_by_size(restored, steps_in), *_by_size(chains - restored, steps_in)):
        steps = tuple(sorted(step for caller in callers for step in steps_in[caller]))
        if len(steps) >= _MIN_JOINT:
            callees = frozenset(callee for caller in callers for callee in callees_in[caller])
            planned.append(Planned(steps, Change(callers, callees), Variation(restored=callers)))
    return planned


def callee_changes(base: Trajectory, keys: Sequence[SiteKey | None]) -> Iterator[Planned]:
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
            yield Planned(changed, Change(callers, frozenset({callee})), variation)


def _by_size(groups: set[frozenset[str]], steps_in: dict[str, list[int]]) -> list[frozenset[str]]:
    def order(callers: frozenset[str]) -> tuple[int, list[str]]:
        return -sum(len(steps_in[caller]) for caller in callers), sorted(callers)

    return sorted(groups, key=order)


def plan_rounds(
    planned: Sequence[Planned],
    num_rounds: int,
    per_round: int,
    decisions_per_flip: int,
    num_decisions: int,
) -> list[list[Planned]]:
    """Divide changes into compiles in which no function occurs twice.

    Args:
      planned: the changes in order of preference.
      num_rounds: largest number of compiles.
      per_round: largest number of changes in one compile.
      decisions_per_flip: a compile after the second must change at least one decision of this many.
      num_decisions: number of all decisions.

    Returns:
      The changes of each compile; what fits into none is left out.
    """
    rounds: list[list[Planned]] = []
    used: list[set[str]] = []
    for change in planned:
        functions = change.change.functions
        for members, taken in zip(rounds, used, strict=True):
            if len(members) < per_round and not functions & taken:
                members.append(change)
                taken |= functions
                break
        else:
            if len(rounds) < num_rounds:
                rounds.append([change])
                used.append(set(functions))
    return [
        chosen
        for number, chosen in enumerate(rounds)
        if number < _MIN_ROUNDS
        or per_round == 1
        or sum(len(change.steps) for change in chosen) * decisions_per_flip >= num_decisions
    ]


def together(planned: Sequence[Planned]) -> Variation:
    """Return the variation that makes all of some changes."""
    if len(planned) == 1:
        return planned[0].variation
    variations = [change.variation for change in planned]
    return Variation(
        frozenset().union(*(variation.flips for variation in variations)),
        frozenset().union(*(variation.callees for variation in variations)),
        frozenset().union(*(variation.restored for variation in variations)),
    )
