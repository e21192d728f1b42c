"""Constants that a model subtracts or compares with, traced back to its inputs by hand."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution.anchors import anchors
from environments.tensor_graphs.execution.inputs import inputs_near
from environments.tensor_graphs.execution.precise import Precise
from environments.tensor_graphs.execution.sizes import OpenSizes
from tests.environments.tensor_graphs.execution.models import parsed


def layers(text: str, **sizes: int):
    graph = onnx_io.read(parsed(text))
    return anchors(Precise(graph), OpenSizes(graph).at(sizes))


ROWS = "<float[2] c = {100, 1e9}, float half = {0.5}, int64[2] s = {-1, 2}, int64[1] all = {-1}>"


@pytest.mark.parametrize(
    "nodes, expected",
    [
        ("y = Sub(x, c)", [[[100, 1e9], [100, 1e9]]]),
        ("y = Add(c, x)", [[[-100, -1e9], [-100, -1e9]]]),
        ("b = Less(x, c) y = Cast <to = 1> (b)", [[[100, 1e9], [100, 1e9]]]),
        ("y = Min(x, c)", [[[100, 1e9], [100, 1e9]]]),
        # x/2 is near c where x is near 2·c; -x, where it is near -c.
        ("a = Mul(x, half) y = Sub(a, c)", [[[200, 2e9], [200, 2e9]]]),
        ("a = Neg(x) y = Sub(a, c)", [[[-100, -1e9], [-100, -1e9]]]),
        ("a = Transpose <perm = [1, 0]> (x) y = Sub(a, c)", [[[100, 100], [1e9, 1e9]]]),
        ("a = Reshape(x, all) b = Reshape(a, s) y = Sub(b, c)", [[[100, 1e9], [100, 1e9]]]),
        # Nothing leads back through a product of matrices, and small constants are met anyhow.
        ("a = MatMul(x, x) y = Sub(a, c)", []),
        ("a = MatMul(x, x) b = Neg(a) d = Reshape(b, s) y = Sub(d, c)", []),
        ("a = Sin(x) y = Sub(a, c)", []),
        ("y = Sub(x, half)", []),
    ],
)
def test_a_constant_is_traced_to_the_input(nodes, expected):
    traced = layers(f"g (float[n,2] x) => (float[n,2] y) {ROWS} {{ {nodes} }}", n=2)
    np.testing.assert_allclose([layer["x"] for layer in traced], expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A slice is compared with 50, the rest with nothing; a second input shares the layer.
        ("""g (float[3] x, float[1] z) => (float[1] y)
            <int64[1] two = {2}, int64[1] three = {3}, float fifty = {50}, float ten = {10}>
            { a = Slice(x, two, three) b = Sub(a, fifty) c = Sub(z, ten) y = Add(b, c) }""",
         [{"x": [np.nan, np.nan, 50], "z": [10]}]),
        # Two constants for one element are two layers.
        ("""g (float[1] x) => (float[1] y) <float ten = {10}, float fifty = {50}>
            { a = Sub(x, ten) b = Sub(x, fifty) y = Mul(a, b) }""", [{"x": [10]}, {"x": [50]}]),
        # A batch normalisation subtracts its mean.
        ("""g (float[1,2,1] x) => (float[1,2,1] y)
            <float[2] one = {1, 1}, float[2] mean = {7, 1000}>
            { y = BatchNormalization(x, one, one, mean, one) }""", [{"x": [7, 1000]}]),
        ("""g (bool c, float[1] x) => (float[1] y) <float ten = {10}> { y = If (c) <
            then_branch = t () => (float[1] a) { a = Sub(x, ten) },
            else_branch = e () => (float[1] b) { b = Neg(x) }> }""", [{"x": [10]}]),
    ],
)  # fmt: skip
def test_layers(text, expected):
    traced = [
        {name: array.reshape(-1).tolist() for name, array in layer.items()}
        for layer in layers(text)
    ]
    np.testing.assert_equal(sorted(traced, key=lambda layer: layer["x"][-1]), expected)


def test_inputs_are_drawn_near_them():
    text = """g (float[64] x, int64[64] i) => (bool[64] y, float[64] z)
        <float far = {1e6}, int64 large = {16000}> { y = Equal(i, large) z = Sub(x, far) }"""
    model, (layer,) = parsed(text), layers(text)
    for scale in (1e-3, 1.0, 1e3):
        drawn = inputs_near(layer, scale, model)
        assert drawn["x"].dtype == np.float32 and drawn["i"].dtype == np.int64
        assert np.abs(drawn["x"] - 1e6).max() < 5 * scale + 0.1
        assert np.abs(drawn["i"] - 16000).max() <= max(5 * scale, 0.5)
    assert len(set(drawn["i"].tolist())) > 10
