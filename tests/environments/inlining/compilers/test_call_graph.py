"""Calls followed up and down, worked by hand."""

from __future__ import annotations

from environments.inlining.compilers.call_graph import callers_of, closure

CALLS = {"main": ["f", "g", "f"], "f": ["h"], "h": ["f"], "alone": []}


def test_callers_are_named_once():
    assert callers_of(CALLS) == {"f": {"main", "h"}, "g": {"main"}, "h": {"f"}}


def test_what_is_reached_includes_the_start_and_recursion_ends():
    assert closure({"f"}, CALLS) == {"f", "h"}
    assert closure({"h"}, callers_of(CALLS)) == {"h", "f", "main"}
    assert closure({"alone", "unknown"}, CALLS) == {"alone", "unknown"}
