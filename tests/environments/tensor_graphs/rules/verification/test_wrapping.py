"""Integers as ONNX means them: they wrap around, and some quotients do not exist."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs.operators import table
from environments.tensor_graphs.rules.verification.wrapping import Wrapping


def compute(op, *arrays, key=0, **attributes):
    algebra = Wrapping(key)
    complete = table.complete(op, attributes, None)
    with np.errstate(all="ignore"):
        (result,) = table.evaluate(op, arrays, complete, algebra)
    return result, algebra.is_defined


@pytest.mark.parametrize(
    ("op", "arrays", "expected"),
    [
        ("Add", [[100], [100]], [-56]),  # 200 - 256
        ("Mul", [[16], [16]], [0]),
        ("Mul", [[12], [12]], [-112]),  # 144 - 256
        ("Neg", [[-128]], [-128]),
        ("Abs", [[-128]], [-128]),
        ("Div", [[-7, 7, -7, -128], [2, -2, -2, 3]], [-3, -3, 3, -42]),
    ],
)
def test_int8_by_hand(op, arrays, expected):
    result, is_defined = compute(op, *(np.array(array, np.int8) for array in arrays))
    assert result.dtype == np.int8 and result.tolist() == expected and is_defined


def test_unsigned_numbers_are_not_negated_by_the_way():
    """Abs compares with 0 and negates what is below, of which there is nothing."""
    result, _ = compute("Abs", np.array([0, 200], np.uint8))
    assert result.tolist() == [0, 200]


@pytest.mark.parametrize("shapes", [((), ()), ((), (2,)), ((2,), ())])
@pytest.mark.parametrize("divisor", [0, 3])
def test_quotients_keep_their_type(shapes, divisor):
    """Also where NumPy takes arrays of shape [] for numbers of any type."""
    a, b = (np.full(shape, x, np.uint8) for shape, x in zip(shapes, (200, divisor), strict=True))
    quotient, _ = compute("Div", a, b)
    assert quotient.dtype == np.uint8 and quotient.shape == np.broadcast_shapes(*shapes)


@pytest.mark.parametrize(("a", "b"), [(5, 0), (-128, -1)])
def test_a_quotient_that_does_not_exist_depends_on_the_key(a, b):
    results = [
        compute("Div", np.array([a, 6], np.int8), np.array([b, 3], np.int8), key=key)
        for key in range(4)
    ]
    assert not any(is_defined for _, is_defined in results)
    assert len({int(quotients[0]) for quotients, _ in results}) > 1
    assert {int(quotients[1]) for quotients, _ in results} == {2}


def test_a_number_that_a_type_does_not_hold_depends_on_the_key():
    x = np.array([-3.7, 300.0, np.nan], np.float32)
    integers = [compute("Cast", x, key=key, to="int8")[0] for key in range(4)]
    assert {int(array[0]) for array in integers} == {-3}
    assert (
        len({int(array[1]) for array in integers}) > 1
        and len({int(array[2]) for array in integers}) > 1
    )


def test_floats_are_left_alone():
    quotient, is_defined = compute("Div", np.float32([1, -1]), np.float32([0, 0]))
    assert quotient.tolist() == [np.inf, -np.inf] and is_defined
