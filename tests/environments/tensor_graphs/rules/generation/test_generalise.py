"""Conditions are learned from instances, and no condition where none helps."""

from __future__ import annotations

from environments.tensor_graphs.rules.generation.generalise import find_conditions, make_rule
from environments.tensor_graphs.rules.language.expressions import parse
from environments.tensor_graphs.rules.verification.verify import needs, verify


def test_conditions_are_learned():
    rule = make_rule("rule", [parse("(Transpose ?x :perm $p)")], [parse("?x")])
    conditional = find_conditions(rule)
    assert [*map(str, conditional.conditions)] == ["(= $p (range 0 (length $p)))"]
    assert verify(conditional, 200).is_right
    assert needs(conditional, conditional.conditions[0])


def test_integers_are_excluded_where_that_is_needed():
    rule = make_rule("rule", [parse("(Mul (Div ?x ?y) ?z)")], [parse("(Div (Mul ?x ?z) ?y)")])
    (condition,) = find_conditions(rule).conditions
    assert "float32" in str(condition)


def test_no_condition_mends_what_is_wrong():
    rule = make_rule("rule", [parse("(Sub ?x ?y)")], [parse("(Add ?x ?y)")])
    assert find_conditions(rule) is None


def test_only_names_and_literals_are_sources():
    composed = parse("(Transpose ?x :perm (inverse $p))")
    assert make_rule("rule", [composed], [parse("?x")]) is None
