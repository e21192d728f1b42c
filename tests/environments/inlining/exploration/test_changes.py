"""Which changes are tried together, and whose bytes are whose, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from environments.inlining.collection.store import Trajectory
from environments.inlining.collection.variation import Variation
from environments.inlining.compilers.object_size import ObjectSize
from environments.inlining.exploration.changes import (
    Change,
    attribute,
    callee_changes,
    joint_changes,
    plan_rounds,
    single_change,
    together,
)


def compiled(*sites):
    """A compile and its sites' names, of (name, LLVM's own decision, the policy's) each."""
    keys, defaults, decisions = zip(*sites, strict=True)
    trajectory = Trajectory(
        "module",
        ("inlining_default",),
        np.array(defaults, np.int64)[:, None],
        np.array(decisions, np.int8),
        ObjectSize(0, 0),
    )
    return trajectory, keys


# The policy inlines k into g, g and h into f, and one call that LLVM would inline stays a call.
DEPARTED = compiled(
    (("g", "k", 1), 0, 1),
    (("f", "g", 1), 0, 1),
    (None, 1, 0),
    (("f", "h", 1), 0, 1),
    (("f", "x", 1), 0, 0),
    (("other", "k", 1), 0, 0),
)


def test_departures_are_taken_back_by_function_and_by_chain():
    f, fg = frozenset("f"), frozenset("fg")
    in_f = Change((1, 3), f, frozenset("gh"), Variation(restored=f))
    from_f = Change((0, 1, 3), fg, frozenset("ghk"), Variation(restored=fg))
    # What is taken back in g is one decision alone, and so no joint change.
    assert joint_changes(*DEPARTED) == [in_f, from_f]
    looped = compiled((("f", "g", 1), 0, 1), (("g", "f", 1), 0, 1))
    assert [planned.steps for planned in joint_changes(*looped)] == [(0, 1)], "recursion ends"


def test_all_calls_of_a_function_are_inlined_together_or_none():
    (of_k,) = callee_changes(*DEPARTED)
    # g calls k inlined already; the other call follows. Of g, h and x there is one call each.
    variation = Variation(callees=frozenset({("k", 1)}))
    assert of_k == Change((5,), frozenset({"other"}), frozenset("k"), variation)
    inlined = compiled((("f", "k", 1), 0, 1), (("g", "k", 1), 0, 1), (None, 1, 1))
    (taken_back,) = callee_changes(*inlined)
    assert taken_back.steps == (0, 1)
    assert taken_back.variation == Variation(callees=frozenset({("k", 0)}))


def test_a_call_site_without_a_name_is_changed_by_its_place():
    keys = DEPARTED[1]
    flip = Variation(flips=frozenset({("other", "k", 1)}))
    assert single_change(5, keys[5]) == Change((5,), frozenset({"other"}), frozenset("k"), flip)
    by_place = Variation(steps=frozenset({2}))
    assert single_change(2, keys[2]) == Change((2,), frozenset(), frozenset(), by_place)


def test_rounds_share_no_function():
    sites = [
        ("a", "x", 1),  # round 0
        ("b", "x", 1),  # x is taken: round 1
        ("c", "y", 1),  # round 0
        ("a", "z", 1),  # a is taken in round 0: round 1
        ("y", "x", 1),  # taken in both, and there may be no third: left out
        ("d", "w", 1),  # round 0 is full: round 1
        ("e", "v", 1),  # round 1 is full too, and it was: left out
    ]
    planned = [single_change(step, key) for step, key in enumerate(sites)]

    def rounds(num_rounds, per_round):
        return steps_of(plan_rounds(planned, num_rounds, per_round, 99, num_decisions=7))

    assert rounds(2, 2) == [[0, 2], [1, 3]]
    assert rounds(2, 3) == [[0, 2, 5], [1, 3, 6]]
    assert rounds(9, 1) == [[step] for step in range(7)]
    assert rounds(0, 2) == plan_rounds([], 2, 2, 99, 7) == []


def steps_of(rounds):
    return [[planned.steps[0] for planned in chosen] for chosen in rounds]


def test_rounds_hold_what_shares_no_function_and_is_worth_a_compile():
    planned = [single_change(step, DEPARTED[1][step]) for step in (0, 1, 3, 4, 5)]
    # g-k; then f-g shares g with it, f-h shares f with that, and other-k shares k with the first.
    rounds = plan_rounds(planned, 9, 9, decisions_per_flip=6, num_decisions=6)
    assert steps_of(rounds) == [[0, 3], [1, 5], [4]]
    # The third compile would change one decision of six.
    rounds = plan_rounds(planned, 9, 9, decisions_per_flip=5, num_decisions=6)
    assert steps_of(rounds) == [[0, 3], [1, 5]]
    assert together([planned[0], planned[2]]) == Variation(
        flips=frozenset({("g", "k", 1), ("f", "h", 1)})
    )


FIRST, SECOND = single_change(0, ("f", "g", 1)), single_change(1, ("h", "k", 1))


def test_callers_and_callees_belong_to_their_site():
    # g was inlined into f and went away; h grew smaller without k, which stayed as it was.
    before = {"f": 100, "g": 40, "h": 80, "k": 10, "other": 7}
    after = {"f": 130, "h": 70, "k": 10, "other": 7}
    assert attribute([FIRST, SECOND], before, after, {}) == [30 - 40, -10]


CALLS = {
    "above_f": ["f"],
    "top": ["above_f"],
    "above_both": ["f", "h"],
    "g": ["below_g"],
    "calls_k": ["k", "x"],
    "calls_f_and_k": ["k", "f"],
    "calls_g_and_k": ["k", "g"],
}


@pytest.mark.parametrize(
    ("function", "deltas"),
    [
        # f is inlined into its caller, and that into the next: both reach f's site alone.
        ("above_f", [-1 + 5, 2]),
        ("top", [-1 + 5, 2]),
        # What g calls may have been inlined into g.
        ("below_g", [-1 + 5, 2]),
        # f and h may both have been inlined here: nobody knows whose bytes these are.
        ("above_both", [None, None]),
        # It calls k, which has one use less than before.
        ("calls_k", [-1, 2 + 5]),
        # The same, but f is inlined into it, which matters more.
        ("calls_f_and_k", [-1 + 5, 2]),
        ("calls_g_and_k", [None, None]),
        # Reached by no site: not their doing, as far as can be told.
        ("elsewhere", [-1, 2]),
    ],
)
def test_another_function_changed_too(function, deltas):
    before, after = {"f": 10, "h": 10, function: 20}, {"f": 9, "h": 12, function: 25}
    assert attribute([FIRST, SECOND], before, after, CALLS) == deltas


def test_only_the_sites_that_reach_it_become_unknown():
    third = single_change(2, ("p", "q", 1))
    before = {"f": 10, "h": 10, "p": 10, "above_both": 20}
    after = {"f": 11, "h": 11, "p": 14, "above_both": 21}
    assert attribute([FIRST, SECOND, third], before, after, CALLS) == [None, None, 4]
    calls = {"f": ["f", "top"], "top": ["f"]}
    assert attribute([FIRST, SECOND], {"top": 3}, {"top": 4}, calls) == [1, 0], "recursion ends"
