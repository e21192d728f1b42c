"""Whose bytes are whose, worked by hand."""

from __future__ import annotations

import pytest

from environments.inlining.exploration.credit import Change, attribute

FIRST, SECOND = Change.at("f", "g"), Change.at("h", "k")


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
    third = Change.at("p", "q")
    before = {"f": 10, "h": 10, "p": 10, "above_both": 20}
    after = {"f": 11, "h": 11, "p": 14, "above_both": 21}
    assert attribute([FIRST, SECOND, third], before, after, CALLS) == [None, None, 4]


def test_recursion_ends():
    calls = {"f": ["f", "top"], "top": ["f"]}
    before, after = {"top": 3}, {"top": 4}
    assert attribute([FIRST, SECOND], before, after, calls) == [1, 0]
