"""Conditions are learned from instances, and no condition where none helps."""

from __future__ import annotations

from environments.tensor_graphs.rules.generation.generalise import find_conditions, make_rule
from environments.tensor_graphs.rules.language.expressions import parse
from environments.tensor_graphs.rules.verification.verify import needs, verify


def test_conditions_are_learned():
    rule = make_rule([parse("(Transpose ?x :perm $p)")], [parse("?x")])
    conditional = find_conditions(rule)
    assert [*map(str, conditional.conditions)] == ["(= $p (range 0 (length $p)))"]
    assert verify(conditional, 200).is_right
    assert needs(conditional, conditional.conditions[0])


def test_integers_are_excluded_where_that_is_needed():
    rule = make_rule([parse("(Mul (Div ?x ?y) ?z)")], [parse("(Div (Mul ?x ?z) ?y)")])
    (condition,) = find_conditions(rule).conditions
    assert "float32" in str(condition)


def test_no_condition_mends_what_is_wrong():
    rule = make_rule([parse("(Sub ?x ?y)")], [parse("(Add ?x ?y)")])
    assert find_conditions(rule) is None


def test_what_a_source_computes_becomes_a_name():
    cut = parse("(Split (Concat ?x ?y :axis 0) :axis 0 :split (list (dim ?x 0) (dim ?y 0)))")
    assert make_rule([cut], [parse("?x")]) is None
    rule = make_rule([cut], [parse("?x")], is_named=True)
    # The first size of the list is the first name, and each name must be what was computed.
    split = "(Split (Concat ?x ?y :axis 0) :axis 0 :split (list $computed0 $computed1))"
    assert str(rule.source[0]) == split
    assert [*map(str, rule.conditions)] == [
        "(= $computed0 (dim ?x 0))",
        "(= $computed1 (dim ?y 0))",
    ]
    # One term has one name wherever it stands, and a name or a number stays what it is.
    group = "(Conv ?x ?w :group (dim ?x 1) :pads (list $p 0 $p (dim ?x 1)) :strides $s)"
    rule = make_rule([parse(group)], [parse("?x")], is_named=True)
    named = "(Conv ?x ?w :group $computed0 :pads (list $p 0 $p $computed0) :strides $s)"
    assert str(rule.source[0]) == named


def test_a_variable_that_only_an_attribute_mentions_makes_no_rule():
    """As a name, the attribute no longer says what ?w and ?v are."""
    cut = parse("(Relu (Split ?x :axis 0 :split (list (dim ?w 0) (dim ?v 0))))")
    assert make_rule([cut], [parse("(Relu ?x)")], is_named=True) is None
