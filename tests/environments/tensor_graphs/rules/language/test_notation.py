"""Rules written in Python."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.rules.language.expressions import Apply, Variable
from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    Scalar,
    concat,
    only_where,
    op,
    permute,
    rule,
    rules_in,
)
from environments.tensor_graphs.rules.language.rule import RuleError


@rule
def scale_into_weight(x, w: Constant, s: Scalar):
    return (x @ w) * s, x @ (w * s)


@rule
def transposed_twice(x, p: Attribute, q: Attribute):
    return op.Transpose(op.Transpose(x, perm=p), perm=q), op.Transpose(x, perm=permute(p, q))


def test_rules_in_python():
    assert str(scale_into_weight).splitlines() == [
        "scale_into_weight:",
        "  (Mul (MatMul ?x ?w) ?s)  =>  (MatMul ?x (Mul ?w ?s))",
        "    if (= (size ?s) 1)",
        "    only where (constant ?w)",
    ]
    assert rules_in(globals()) == (scale_into_weight, transposed_twice)


def test_numbers_in_a_target_have_the_type_of_what_is_beside_them():
    @rule
    def doubled(x, s: Attribute):
        return op.Reshape(x, shape=s) * 2.0, op.Reshape(x + x * 1.0, shape=concat(s)), x.rank > 1

    assert str(doubled.source[0]) == "(Mul (Reshape ?x :shape $s) (full 2.0))"
    assert "(Mul ?x (full 1.0 (list) (dtype ?x)))" in str(doubled.target[0])


def test_what_is_no_rule_in_python():
    with pytest.raises(RuleError, match="a source and a target"):
        rule(lambda x: x)
    with pytest.raises(RuleError, match="expected one of Constant"):

        @rule
        def wrong(x: int):
            return x, x

    with pytest.raises(RuleError, match="expected a condition"):
        rule(lambda x: (op.Relu(x), x, True))
    with pytest.raises(TypeError, match="all_of"):
        rule(lambda x: (op.Relu(x), x, x.rank == 1 and x.size == 1))
    with pytest.raises(RuleError, match="is not in its source"):
        rule(lambda x, y: (op.Relu(x), y))


def test_restrictions_are_kept_apart():
    restricted = rule(lambda x: (op.Relu(x), x, only_where(x.rank == 2)))
    assert not restricted.conditions
    assert [*map(str, restricted.restrictions)] == ["(= (rank ?x) 2)"]
    assert restricted.source == (Apply("Relu", (Variable("x"),)),)
