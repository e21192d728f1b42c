"""Terms: their values, and where they have none."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs.graph.nodes import TensorType
from environments.tensor_graphs.rules.language.expressions import parse, parse_term
from environments.tensor_graphs.rules.language.terms import (
    Bindings,
    TermError,
    evaluate,
    holds,
    make_array,
)

BINDINGS = Bindings(
    {
        "x": TensorType("float32", (2, 3, 4)),
        "n": TensorType("float32", ("N", 3)),
        "unknown": TensorType("float32", None),
    },
    {"p": (2, 0, 1), "s": 2},
    {"x"},
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(* (dim ?n 0) 2)", "2*N"),
        ("(/ (* (dim ?n 0) 2) 2)", "N"),
        ("(permute (shape ?x) $p)", (4, 2, 3)),
        ("(permute $p (inverse $p))", (0, 1, 2)),
        ("(set (shape ?x) 1 (+ 1 $s))", (2, 3, 4)),
        ("(concat (slice (shape ?x) 0 -1) (list 7))", (2, 3, 7)),
        ("(broadcast (shape ?x) (list 3 1))", (2, 3, 4)),
        ("(if (constant ?x) (size ?x) 0)", 24),
        ("(= (shape ?n) (list (dim ?n 0) 3))", True),
        ("(= (shape ?n) (shape ?x))", False),
        ("(or (= (dim ?n 0) 4) (= (rank ?x) 3))", True),
        ("(and (constant ?n) (= (dim ?n 0) 4))", False),
        ('(in (dtype ?x) (list "float16" "float32"))', True),
    ],
)
def test_terms(text: str, value: object):
    assert evaluate(parse_term(text), BINDINGS) == value


@pytest.mark.parametrize(
    "text",
    [
        "(= (dim ?n 0) 4)",
        "(not (= (dim ?n 0) 4))",
        "(< (dim ?n 0) 4)",
        "(= (dim ?x 3) 4)",
        "(= (/ 3 2) 1)",
        "(= (rank ?unknown) 1)",
        "(= (+ (dim ?n 0) 1) 1)",
    ],
)
def test_a_condition_of_which_nothing_is_known_is_not_met(text: str):
    with pytest.raises(TermError):
        evaluate(parse_term(text), BINDINGS)
    assert not holds(parse_term(text), BINDINGS)


def test_arrays():
    array = parse("(full 0.5 (list 2) (dtype ?x))")
    np.testing.assert_array_equal(make_array(array, BINDINGS), np.full(2, 0.5, np.float32))
    kernel = make_array(parse('(identity_kernel 4 2 2 "float32")'), BINDINGS)
    assert kernel.shape == (4, 2, 1, 1)
    np.testing.assert_array_equal(kernel[:, :, 0, 0], [[1, 0], [0, 1], [1, 0], [0, 1]])
