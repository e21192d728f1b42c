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
        ("y = Sub(x, c)", [[100, 1e9], [100, 1e9]]),
        ("y = Sub(c, x)", [[100, 1e9], [100, 1e9]]),
        ("y = Add(c, x)", [[-100, -1e9], [-100, -1e9]]),
        ("b = Less(x, c) y = Cast <to = 1> (b)", [[100, 1e9], [100, 1e9]]),
        ("y = Min(x, c)", [[100, 1e9], [100, 1e9]]),
        # x/2 is near c where x is near 2·c; -x, where it is near -c.
        ("a = Mul(x, half) y = Sub(a, c)", [[200, 2e9], [200, 2e9]]),
        ("a = Neg(x) y = Sub(a, c)", [[-100, -1e9], [-100, -1e9]]),
        ("a = Sqrt(x) y = Sub(a, c)", [[1e4, 1e18], [1e4, 1e18]]),
        ("a = Transpose <perm = [1, 0]> (x) y = Sub(a, c)", [[100, 100], [1e9, 1e9]]),
        ("a = Reshape(x, all) b = Reshape(a, s) y = Sub(b, c)", [[100, 1e9], [100, 1e9]]),
        # Nothing leads back through a product of matrices, and small constants are met anyhow.
        ("a = MatMul(x, x) y = Sub(a, c)", None),
        ("y = Sub(x, half)", None),
    ],
)
def test_a_constant_is_traced_to_the_input(nodes, expected):
    traced = layers(f"g (float[n,2] x) => (float[n,2] y) {ROWS} {{ {nodes} }}", n=2)
    if expected is None:
        assert traced == []
        return
    (layer,) = traced
    np.testing.assert_allclose(layer["x"], expected)


def test_parts_of_an_input_have_their_own():
    """A slice is compared with 50, the rest with nothing; a second input shares the layer."""
    text = """g (float[3] x, float[1] z) => (float[1] y)
        <int64[1] two = {2}, int64[1] three = {3}, float fifty = {50}, float ten = {10}>
        { a = Slice(x, two, three) b = Sub(a, fifty) c = Sub(z, ten) y = Add(b, c) }"""
    (layer,) = layers(text)
    np.testing.assert_array_equal(layer["x"], [np.nan, np.nan, 50])
    np.testing.assert_array_equal(layer["z"], [10])


def test_two_constants_for_one_element_are_two_layers():
    text = """g (float[1] x) => (float[1] y) <float ten = {10}, float fifty = {50}>
        { a = Sub(x, ten) b = Sub(x, fifty) y = Mul(a, b) }"""
    assert sorted(float(layer["x"][0]) for layer in layers(text)) == [10, 50]


def test_a_batch_normalisation_subtracts_its_mean():
    text = """g (float[1,2,1] x) => (float[1,2,1] y)
        <float[2] one = {1, 1}, float[2] mean = {7, 1000}>
        { y = BatchNormalization(x, one, one, mean, one) }"""
    (layer,) = layers(text)
    assert layer["x"].reshape(-1).tolist() == [7, 1000]


def test_what_a_branch_compares():
    text = """g (bool c, float[1] x) => (float[1] y) <float ten = {10}> { y = If (c) <
        then_branch = t () => (float[1] a) { a = Sub(x, ten) },
        else_branch = e () => (float[1] b) { b = Neg(x) }> }"""
    (layer,) = layers(text)
    assert layer["x"].tolist() == [10]


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
