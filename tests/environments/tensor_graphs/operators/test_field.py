"""Operators evaluated on integers modulo a prime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from environments.tensor_graphs.graph.nodes import TensorType
from environments.tensor_graphs.operators import table
from environments.tensor_graphs.operators.algebra import FLOATS
from environments.tensor_graphs.operators.field import PRIME, Field
from environments.tensor_graphs.rules.language.computations import Computation
from environments.tensor_graphs.rules.language.expressions import parse
from environments.tensor_graphs.rules.language.terms import Bindings
from tests.environments.tensor_graphs.operators.cases import ALL, Case, types_of

FIELD = Field(7)
RNG = np.random.default_rng(5)

# Whole numbers and halves give whole numbers and fractions with powers of two below them.
EXACT = (
    "Abs Add Clip Concat Conv ConvTranspose DepthToSpace Expand "
    "Gather Gemm Greater GreaterOrEqual GlobalMaxPool LeakyRelu Less LessOrEqual "
    "MatMul Max MaxPool Min Mul Neg PRelu Pad "
    "ReduceMax ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Shape "
    "Sign Slice SpaceToDepth Split Sub Tile Transpose Where "
    "Equal ArgMax ArgMin"
)


def number(*shape: int) -> np.ndarray:
    return FIELD.random(RNG, shape)


def do(op: str, *arrays: np.ndarray, **attributes: Any) -> np.ndarray:
    return table.evaluate(op, arrays, table.complete(op, attributes), FIELD)[0]


def as_numbers(arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [FIELD.embed(array) if array.dtype.kind == "f" else array for array in arrays]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_shapes_are_those_of_floats(case: Case):
    arrays = case.arrays()
    attributes = table.complete(case.op, case.attributes, types_of(arrays))
    types = table.infer(case.op, types_of(arrays), attributes)
    outputs = table.evaluate(case.op, as_numbers(arrays), attributes, FIELD)
    for array, kind in zip(outputs, types, strict=True):
        assert array.shape == kind.shape
        assert array.dtype == (np.uint64 if kind.dtype.startswith("float") else kind.dtype)
        if array.dtype == np.uint64:
            assert array.max(initial=0) < PRIME


@pytest.mark.parametrize("case", [case for case in ALL if case.op in EXACT.split()], ids=str)
def test_small_numbers_are_the_real_ones(case: Case):
    """float64 is exact for them, so both algebras must agree."""
    rng = np.random.default_rng(3)
    arrays = [
        rng.integers(-6, 7, array.shape) / 2.0 if array.dtype.kind == "f" else array
        for array in case.arrays()
    ]
    types = types_of(arrays)
    rounded = {
        name: round(value * 4) / 4 if isinstance(value, float) else value
        for name, value in ({"alpha": 0.25} if case.op == "LeakyRelu" else case.attributes).items()
    }
    attributes = table.complete(case.op, rounded, types)
    expected = table.evaluate(case.op, arrays, attributes, FLOATS)
    outputs = table.evaluate(case.op, as_numbers(arrays), attributes, FIELD)
    for mine, theirs in zip(outputs, expected, strict=True):
        theirs = FIELD.embed(theirs) if theirs.dtype.kind == "f" else theirs
        np.testing.assert_array_equal(mine, theirs)


def test_fractions():
    half, third = FIELD.embed(np.array([0.5])), do("Reciprocal", FIELD.embed(np.array([3.0])))
    assert do("Add", half, half).tolist() == [1]
    assert do("Mul", third, FIELD.embed(np.array([3.0]))).tolist() == [1]
    minus_three_quarters = (-3 * pow(4, -1, PRIME)) % PRIME
    embedded = FIELD.embed(np.array([-0.75, 2.0**40])).tolist()
    assert embedded == [minus_three_quarters, 2**40 % PRIME]
    x = number(4, 9)
    total = do("Mul", do("ReduceMean", x, axes=(1,)), FIELD.embed(np.array(9.0)))
    assert total.tolist() == do("ReduceSum", x, axes=(1,)).tolist()


def test_products_of_matrices_are_exact():
    a, b = number(3, 40), number(40, 50)
    exact = (a.astype(object) @ b.astype(object)) % PRIME
    assert do("MatMul", a, b).tolist() == exact.tolist()


def constant(value: float) -> str:
    return f'(full {value} (list) "float32")'


TRUE = [
    ("(Max ?x (Min ?x ?y))", "?x"),
    ("(Max (Neg ?x) (Neg ?y))", "(Neg (Min ?x ?y))"),
    ("(Sub (Relu ?x) (Relu (Neg ?x)))", "?x"),
    ("(Add (Max ?x ?y) (Min ?x ?y))", "(Add ?x ?y)"),
    ("(Clip (Clip ?x :min 0.0 :max 6.0) :min -1.0 :max 3.0)", "(Clip ?x :min 0.0 :max 3.0)"),
    ("(HardSwish ?x)", f"(Mul ?x (HardSigmoid ?x :alpha {1 / 6} :beta 0.5))"),
    ("(LeakyRelu ?x :alpha 0.25)", f"(PRelu ?x {constant(0.25)})"),
    (f"(Pow ?x {constant(3.0)})", "(Mul ?x (Mul ?x ?x))"),
    (f"(Pow ?x {constant(-2.0)})", "(Reciprocal (Mul ?x ?x))"),
    (f"(Pow ?x {constant(0.5)})", "(Sqrt ?x)"),
    (f"(Pow ?x {constant(0.0)})", "(Div ?x ?x)"),
    ("(Softmax ?x :axis 1)", "(Div (Exp ?x) (ReduceSum (Exp ?x) :axes (list 1)))"),
    ("(LogSoftmax ?x :axis 1)", "(Log (Softmax ?x :axis 1))"),
]
FALSE = [
    ("(Relu (Add ?x ?y))", "(Add (Relu ?x) (Relu ?y))"),
    ("(Exp ?x)", "(Sqrt ?x)"),
    ("(Exp (Add ?x ?y))", "(Add (Exp ?x) (Exp ?y))"),
    ("(Div (Sub ?x ?x) (Sub ?y ?y))", "(Sub ?x ?x)"),
    ("(Pow ?x ?y)", "(Pow ?y ?x)"),
]


@pytest.mark.parametrize(
    ("left", "right", "is_true"),
    [*((*sides, True) for sides in TRUE), *((*sides, False) for sides in FALSE)],
)
def test_equalities_of_all_real_numbers_hold_and_no_others(left, right, is_true):
    bindings = Bindings(dict.fromkeys("xy", TensorType("float32", (5, 4))), {})
    computation = Computation()
    sides = [computation.add_expression(parse(text), bindings) for text in (left, right)]
    for key in range(3):
        values = computation.run({"x": number(5, 4), "y": number(5, 4)}, Field(key))
        first, second = (values[ref.node][ref.output] for ref in sides)
        assert np.array_equal(first, second) == is_true


def test_the_order_is_total_and_depends_on_the_key():
    x = number(50)
    less = FIELD.less(x[:, None], x[None])
    assert np.array_equal(less, ~less.T ^ np.eye(50, dtype=bool))
    places = np.argsort(less.sum(axis=0))
    assert np.array_equal(less[np.ix_(places, places)], np.triu(np.ones((50, 50), bool), 1))
    assert not np.array_equal(less, Field(8).less(x[:, None], x[None]))
    assert 10 < FIELD.less(x, np.zeros_like(x)).sum() < 40


def test_functions_depend_on_the_key_and_not_on_the_process():
    x = np.array([1, 2, 3], np.uint64)
    assert Field(1).apply("Exp", x).tolist() == Field(1).apply("Exp", x).tolist()
    assert Field(1).apply("Exp", x).tolist() != Field(2).apply("Exp", x).tolist()
    assert Field(0).apply("Exp", x).tolist() == [198459195, 1657007247, 2120772937]
