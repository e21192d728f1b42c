"""Which functions a decision answers for, worked by hand."""

from __future__ import annotations

from environments.inlining.function_credit import function_credit

BYTES = {"main": 100.0, "f": 40.0, "g": 10.0}


def parts(names, decisions, bytes_of_function, calls):
    credit = function_credit(tuple(names), decisions, bytes_of_function, calls)
    return [set(part) for part in credit.parts]


def test_a_decision_answers_for_caller_and_callee():
    credit = function_credit((("f", "g"),), [0], BYTES, {"main": ["f"], "f": ["g"]})
    assert credit.parts == [{"f", "g"}]
    assert credit.values == {"main": -100, "f": -40, "g": -10, "": -150}


def test_what_was_inlined_away_is_sought_where_it_went():
    """f is in no object: its body is in mid, which is gone too, and so in main and other."""
    calls = {"main": ["mid"], "other": ["mid"], "mid": ["f"], "f": ["g"]}
    assert parts([("f", "g")], [1], {"main": 9, "other": 9}, calls) == [
        {"f", "g", "mid", "main", "other"}
    ]
    # Where mid stayed, nothing above it holds the body of f.
    assert parts([("f", "g")], [1], {"main": 9, "mid": 5}, calls) == [{"f", "g", "mid"}]


def test_a_call_that_inlining_brought_is_followed_as_well():
    """main calls f only since mid was inlined into it, which the calls before do not tell."""
    names = [("main", "mid"), ("main", "f"), ("f", "g")]
    calls = {"main": ["mid"], "f": ["g"]}
    assert parts(names, [1, 1, 0], {"main": 9}, calls)[2] == {"f", "g", "main"}
    assert parts(names, [1, 0, 0], {"main": 9}, calls)[2] == {"f", "g"}


def test_recursion_ends_and_a_site_without_names_answers_for_all():
    calls = {"f": ["g"], "g": ["f"]}
    assert parts([("f", "g"), (None, None)], [1, 1], {}, calls) == [{"f", "g"}, {""}]
