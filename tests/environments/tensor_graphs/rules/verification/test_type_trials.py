"""For which integers a rule is right, worked by hand.

Integers wrap around, and truth values are no numbers.
"""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs.operators import table
from environments.tensor_graphs.rules.language.rule import GROUPS
from environments.tensor_graphs.rules.verification.type_trials import Wrapping
from environments.tensor_graphs.rules.verification.verify import verify, verify_all
from tests.environments.tensor_graphs.rules.making import FLOATS, make

SIGNED, UNSIGNED, OTHER = "signed", "unsigned", "other"


def types_of(rule, num_instances=40):
    """The groups besides that of floats, for which each of these rules is right."""
    verdict = verify(rule, num_instances)
    assert verdict.is_right, verdict.how
    assert verdict.types[0] == "float"
    return list(verdict.types[1:])


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        # int8: 12 · 12 = 144 is -112. Unsigned numbers have no sign.
        ("(Abs (Mul ?x ?x))", "(Mul ?x ?x)", [UNSIGNED]),
        # Relu is for floats and signed integers only.
        ("(Relu (Mul ?x ?x))", "(Mul ?x ?x)", []),
        # int8: 100 / 16 / 16 = 0, but 16 · 16 is 0.
        ("(Div (Div ?x ?a) ?b)", "(Div ?x (Mul ?a ?b))", []),
        # int8: 3 / 2 · 2 = 2.
        ("(Mul (Div ?x (full 2.0)) (full 2.0))", "?x", []),
        # int8: -(-(-128)) = -128. Neg is for signed numbers only.
        ("(Neg (Neg ?x))", "?x", [SIGNED]),
        # int8: |-128| is -128, whose Relu is 0.
        ("(Relu (Abs ?x))", "(Abs ?x)", []),
        # Sums and products modulo 2ⁿ are a ring.
        ("(Add (Add ?x ?y) ?z)", "(Add ?x (Add ?y ?z))", [SIGNED, UNSIGNED]),
        ("(Mul (Add ?x ?y) ?z)", "(Add (Mul ?x ?z) (Mul ?y ?z))", [SIGNED, UNSIGNED]),
        # uint8: 0 - x exists, -x does not.
        ("(Sub (full 0.0) ?x)", "(Neg ?x)", [SIGNED]),
        # int8: 127 < 127 + 1 = -128 is wrong.
        ("(Less (Add ?x ?z) (Add ?y ?z))", "(Less ?x ?y)", []),
        ("(Less ?x ?y)", "(Greater ?y ?x)", [SIGNED, UNSIGNED]),
        # No unsigned number is below 0; but Relu takes none, and few signed ones in onnxruntime.
        ("(Max ?x (full 0.0))", "(Relu ?x)", []),
        ("(Relu (Relu ?x))", "(Relu ?x)", [SIGNED]),
        # onnxruntime multiplies matrices of integers by MatMul only.
        ("(MatMul ?x ?y)", "(Gemm ?x ?y)", []),
        # What only moves elements moves all.
        ("(Transpose (Transpose ?x :perm $p) :perm $q)", "(Transpose ?x :perm (permute $p $q))",
         [SIGNED, UNSIGNED, OTHER]),
        ("(Where ?c ?x ?x)", "(Where (Not ?c) ?x ?x)", [SIGNED, UNSIGNED, OTHER]),
        # Roots are of floats.
        ("(Sqrt (Abs ?x))", "(Sqrt (Abs (Abs ?x)))", []),
    ],
)  # fmt: skip
def test_types(source, target, expected):
    conditions = ["(= (rank ?x) 2)", "(= (rank ?y) 2)"] if "MatMul" in source else []
    assert types_of(make(source, target, *conditions)) == expected


def test_conditions_bound_the_types():
    """Where a rule does not match, it need not be right."""
    rule = make("(Div (Mul ?x ?y) ?z)", "(Mul (Div ?x ?z) ?y)", FLOATS)
    assert types_of(rule) == []
    assert types_of(make("(Add ?x ?y)", "(Add ?y ?x)", FLOATS)) == []
    signed = '(not (in (dtype ?x) (list "uint8" "uint16" "uint32" "uint64")))'
    assert types_of(make("(Add ?x ?y)", "(Add ?y ?x)", signed)) == [SIGNED]


def test_numbers_that_a_rule_takes_are_of_any_size():
    """int8: x + 100 + 100 is x - 56; 100 / 16 / 16 is 0, but 16 · 16 is 0."""
    sums = "(Add (Add ?x (full $a)) (full $b))"
    added = make(sums, "(Add ?x (full (+ $a $b) (list) (dtype ?x)))")
    assert types_of(added) == [SIGNED, UNSIGNED]
    quotients = "(Div (Div ?x (full $a)) (full $b))"
    product = "(Div ?x (full (* $a $b) (list) (dtype ?x)))"
    divided = make(quotients, product, "(> $a 0)", "(> $b 0)")
    assert types_of(divided, 200) == []


def test_conversions_are_tried_with_large_numbers():
    """46341 · 46341 is negative in int32, and 46341 is a float."""
    rule = make('(Abs (Mul (Cast ?x :to "int32") (Cast ?x :to "int32")))',
                '(Mul (Cast ?x :to "int32") (Cast ?x :to "int32"))')  # fmt: skip
    verdict = verify(rule, 120)
    assert not verdict.is_right and "output 0 is -" in verdict.how
    negated = make('(Neg (Neg (Cast ?x :to "int32")))', '(Cast ?x :to "int32")')
    assert verify(negated, 120).is_right


def test_a_rule_must_be_right_with_each_seed():
    rule = make("(Abs (Mul ?x ?x))", "(Mul ?x ?x)")
    assert verify_all([rule], 60, (1, 2))["rule"].types == ("float", UNSIGNED)
    moves = make("(Transpose ?x :perm $p)", "(Transpose ?x :perm (permute $p (range 0 (rank ?x))))")
    assert verify_all([moves], 60, (1, 2))["rule"].types == GROUPS


def compute(op, *arrays, key=0, **attributes):
    algebra = Wrapping(key)
    complete = table.complete(op, attributes, None)
    with np.errstate(all="ignore"):
        (result,) = table.evaluate(op, arrays, complete, algebra)
    return result, algebra.is_defined


@pytest.mark.parametrize(("a", "b"), [(5, 0), (-128, -1)])
def test_a_quotient_that_does_not_exist_depends_on_the_key(a, b):
    numbers, divisors = np.array([a, 6], np.int8), np.array([b, 3], np.int8)
    results = [compute("Div", numbers, divisors, key=key) for key in range(4)]
    assert not any(is_defined for _, is_defined in results)
    assert len({int(quotients[0]) for quotients, _ in results}) > 1
    assert {int(quotients[1]) for quotients, _ in results} == {2}


def test_a_number_that_a_type_does_not_hold_depends_on_the_key():
    x = np.array([-3.7, 300.0, np.nan], np.float32)
    integers = [compute("Cast", x, key=key, to="int8")[0] for key in range(4)]
    assert {int(array[0]) for array in integers} == {-3}
    assert all(len({int(array[place]) for array in integers}) > 1 for place in (1, 2))
