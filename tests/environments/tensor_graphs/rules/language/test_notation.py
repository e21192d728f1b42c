"""Rules written in Python."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    Scalar,
    concat,
    op,
    permute,
    rule,
    rules,
    with_bias,
)
from environments.tensor_graphs.rules.language.rule import RuleError


@rule
def scale_into_weight(x, w: Constant, s: Scalar):
    return (x @ w) * s, x @ (w * s)


def test_rules_in_python():
    assert str(scale_into_weight).splitlines() == [
        "scale_into_weight:",
        "  (Mul (MatMul ?x ?w) ?s)  =>  (MatMul ?x (Mul ?w ?s))",
        "    if (= (size ?s) 1)",
        "    only where (constant ?w)",
    ]


def test_several_rules_of_one_function():
    @rules
    def turned(x, w: Constant, p: Attribute, q: Attribute):
        both = op.Transpose(op.Transpose(x, perm=p), perm=q)
        return {"twice": (both, op.Transpose(x, perm=permute(p, q))), "sum": (x + w, w + x)}

    assert [rule.name for rule in turned] == ["twice", "sum"]
    assert str(turned[0].target[0]) == "(Transpose ?x :perm (permute $p $q))"
    # An annotation counts where the source has the parameter.
    assert [len(rule.restrictions) for rule in turned] == [0, 1]


def test_a_rule_with_and_without_bias():
    @with_bias("a", "b")
    def merged(x, v, w, a: Constant, b):
        return op.Gemm(op.Gemm(x, v, a), w, b), op.Gemm(x, v @ w, a @ w + b * 2.0)

    without, with_both = merged
    assert (without.name, with_both.name) == ("merged", "merged_with_bias")
    assert [str(side[0]) for side in (without.source, without.target)] == [
        "(Gemm (Gemm ?x ?v) ?w)",
        "(Gemm ?x (MatMul ?v ?w))",
    ]
    assert (without.constants, with_both.constants) == (frozenset(), frozenset("a"))
    assert str(with_both.source[0]) == "(Gemm (Gemm ?x ?v ?a) ?w ?b)"


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
