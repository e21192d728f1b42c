"""Outputs in float64: of models computed by hand, and of parts that only others compute."""

from __future__ import annotations

import time

import numpy as np
import pytest

from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.execution.precise import ImpreciseError, Precise
from tests.environments.tensor_graphs.execution.models import parsed


def run(text: str, **inputs):
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    return Precise(onnx_io.read(parsed(text))).run(arrays)["y"]


BRANCH = """g (bool c, float[1] x) => (float[1] y) { r = Identity(x) y = If (c) <
    then_branch = t () => (float[1] a) { a = Add(r, x) },
    else_branch = e () => (float[1] b) { b = Neg(r) }> }"""


@pytest.mark.parametrize(
    ("text", "inputs", "expected"),
    [
        # 1e8 + 1 is no float32, and 1/3 has more digits than one.
        ("""g (float[n] x) => (float[n] y) <float one = {1}, float three = {3}>
            { a = Add(x, one) b = Sub(a, x) y = Div(b, three) }""",
         {"x": np.float32([1e8, 0])}, [1 / 3, 1 / 3]),
        # A Reshape to [2·n], and one whose size is that of another input.
        ("""g (float[n,2] x, float[m] z) => (float[k] y) <int64[1] all = {-1}>
            { a = Reshape(x, all) s = Shape(z) b = Reshape(z, s) y = Concat <axis = 0> (a, b) }""",
         {"x": np.float32([[1, 2], [3, 4], [5, 6]]), "z": np.float32([7])},
         [1.0, 2, 3, 4, 5, 6, 7]),
        (BRANCH, {"c": True, "x": np.float32([1])}, [2.0]),
        (BRANCH, {"c": False, "x": np.float32([1])}, [-1.0]),
        # CumSum runs in onnxruntime; Hardmax, which has no float64 there, in onnx.
        ("g (float[3] x) => (float[3] y) <int64 a = {0}> { y = CumSum(x, a) }",
         {"x": np.float32([1e8, 1, 1])}, [1e8, 1e8 + 1, 1e8 + 2]),
        ("g (float[1,3] x) => (float[1,3] y) { y = Hardmax(x) }",
         {"x": np.float32([[1, 3, 2]])}, [[0.0, 1, 0]]),
        # Integers and truth values stay as they are: 2^80 wraps around to 0.
        ("g (int64[2] x, int64[2] z) => (bool[2] y) { a = Mul(x, x) y = Less(a, z) }",
         {"x": np.int64([2**40, 3]), "z": np.int64([0, 10])}, [False, True]),
    ],
)  # fmt: skip
def test_models_computed_by_hand(text, inputs, expected):
    y = run(text, **inputs)
    assert y.dtype == np.array(expected).dtype and y.tolist() == expected


@pytest.mark.parametrize("name", ["bert-tiny", "squeezenet-1.1"])
def test_built_in_models(name):
    model = models.make(name)
    inputs = random_inputs(model)
    exact, own = Precise(onnx_io.read(model)).run(inputs), backend().open(model).run(inputs)
    for output, array in own.items():
        np.testing.assert_allclose(array, exact[output], atol=1e-5 * np.abs(array).max())


def test_it_gives_up_at_a_loop_and_when_time_is_over():
    text = """g (float[2] x) => (float[2] y) <int64 n = {3}, bool yes = {1}> {
        y = Loop (n, yes, x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w)
            { d = Identity(c) w = Relu(v) }> }"""
    x = np.float32([1, 2])
    with pytest.raises(ImpreciseError, match="Loop"):
        run(text, x=x)
    precise = Precise(onnx_io.read(parsed("g (float[2] x) => (float[2] y) { y = Relu(x) }")))
    with pytest.raises(ImpreciseError, match="too long"):
        precise.run({"x": x}, until_s=time.monotonic() - 1)


def test_an_operator_that_takes_too_long_in_float64_is_computed_as_the_model_does():
    """onnxruntime has no Resize for float64, and onnx's visits each number of an image."""
    model = parsed(
        """g (float[1,8,64,64] x) => (float[1,8,512,512] z)
            <float[4] s = {1, 1, 4, 4}, float[4] t = {1, 1, 2, 2}>
        { y = Resize <mode = "linear"> (x, , s) z = Resize <mode = "cubic"> (y, , t) }"""
    )
    inputs = random_inputs(model)
    exact = Precise(onnx_io.read(model)).run(inputs)["z"]
    assert exact.dtype == np.float64
    np.testing.assert_allclose(backend().open(model).run(inputs)["z"], exact, atol=1e-5)
