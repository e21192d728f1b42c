"""Expressions: texts, and what is put in the place of variables."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.rules.language.expressions import (
    ExpressionError,
    parse,
    substitute,
    variables,
)


@pytest.mark.parametrize(
    "text",
    [
        "?x",
        "(Conv ?x ?w :group 2 :strides $s)",
        "(output 1 (Split ?x :axis (- (rank ?x) 1) :split (list $m $n)))",
        "(Clip ?x nil ?max)",
        '(Gelu ?x :approximate "none")',
        "(Add ?x (full 0.0 (list) (dtype ?x)))",
    ],
)
def test_an_expression_is_what_it_prints(text: str):
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(Relu ?x", "missing"),
        ("(Relu x)", "expected a tensor"),
        ("(Relu ?x :a ?y)", "is a tensor"),
        ("(output x (Split ?x))", "NUMBER"),
        ("?x ?y", "one expression"),
        ("()", "operator's name"),
    ],
)
def test_what_is_no_expression_is_refused_in_one_line(text: str, problem: str):
    with pytest.raises(ExpressionError, match=problem) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_variables_can_be_replaced():
    expression = parse("(Add ?x (Relu ?y))")
    changed = substitute(expression, {parse("?x"): parse("(Neg ?z)")})
    assert str(changed) == "(Add (Neg ?z) (Relu ?y))"
    assert variables(changed) == ("z", "y")
