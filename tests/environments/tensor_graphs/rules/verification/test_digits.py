"""Which rules lose digits where large numbers cancel: worked by hand.

With 24 bits, 16,777,217 is no float32, and a sum of a million and a small number keeps 1/16 of it.
"""

from __future__ import annotations

import pytest

from environments.tensor_graphs.rules.verification.verify import verify
from tests.environments.tensor_graphs.rules.making import make

MATRICES = ("(= (rank ?x) 2)", "(= (rank ?w) 2)")
NORM = "(BatchNormalization ?x ?s ?b ?m ?v :epsilon 0.5)"
SCALE = "(Div ?s (Sqrt (Add ?v (full 0.5 (list) (dtype ?v)))))"
CHANNELS = "(concat (list -1) (repeat 1 (- (rank ?x) 2)))"
FOLDED = (
    f"(Add (Mul ?x (Reshape {SCALE} :shape {CHANNELS})) "
    f"(Reshape (Sub ?b (Mul ?m {SCALE})) :shape {CHANNELS}))"
)


@pytest.mark.parametrize(
    ("source", "target", "conditions", "is_loss"),
    [
        # x = 1000001, c = 1000000: x - c is 1. But x / 3 and c / 3 are multiples of 1/32.
        ("(Div (Sub ?x ?c) ?s)", "(Sub (Div ?x ?s) (Div ?c ?s))", (), True),
        # c = -1000000 stands for the same.
        ("(Mul (Add ?x ?c) ?s)", "(Add (Mul ?x ?s) (Mul ?c ?s))", (), True),
        # c - 0.01 is a multiple of 1/16.
        ("(Add (Sub ?x ?c) ?b)", "(Sub ?x (Sub ?c ?b))", (), True),
        # A large mean, near x.
        (NORM, FOLDED, (), True),
        # x² - y² = (x - y) (x + y).
        ("(Mul (Sub ?x ?y) (Add ?x ?y))", "(Sub (Mul ?x ?x) (Mul ?y ?y))",
         ("(= (shape ?x) (shape ?y))",), True),
        # Nothing cancels that did not before.
        ("(Add (Mul ?x (full 2.0)) (Mul ?x (full 3.0)))", "(Mul ?x (full 5.0 (list) (dtype ?x)))",
         (), False),
        # The way back: the source loses digits, the target does not.
        ("(Add (Mul ?x ?s) (Mul ?c ?s))", "(Mul (Add ?x ?c) ?s)", (), False),
        # Both products are rounded before they cancel.
        ("(Add (MatMul ?x ?w) (MatMul ?y ?v))",
         "(MatMul (Concat ?x ?y :axis -1) (Concat ?w ?v :axis 0))",
         (*MATRICES, "(= (rank ?v) 2)", "(= (rank ?y) 2)"), False),
        # What is a part of the rule, here 3, has no offset of its own.
        ("(Div (Mul ?x (Clip (Add ?x (full 3.0)) :max 6.0 :min 0.0)) (full 6.0))",
         "(HardSwish ?x)", (), False),
    ],
)  # fmt: skip
def test_what_loses_digits(source, target, conditions, is_loss):
    """It shows soon."""
    verdict = verify(make(source, target, *conditions), 40 if is_loss else 60)
    assert verdict.is_right, verdict.how
    assert bool(verdict.digit_loss) == is_loss
