"""Opaque nodes are written as they were read."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from environments.tensor_graphs.onnx_io import read
from tests.environments.tensor_graphs.onnx_io.running import (
    operators,
    parsed,
    random_inputs,
    round_trip,
    run,
    with_weights,
)


def test_types_that_numpy_has_not_pass_through():
    model = parsed(
        """g (float[3] x, bfloat16[3] w) => (float[3] y)
        { a = Cast <to = 16> (x) b = Cast <to = 1> (w) c = Cast <to = 1> (a) y = Mul(b, c) }"""
    )
    del model.graph.input[1]
    model.graph.initializer.append(helper.make_tensor("w", 16, [3], [1.0, 2.0, -0.5]))
    round_trip(model)


def test_operators_of_onnxruntime_pass_through():
    """onnx knows nothing about them; onnxruntime tells the shapes of what comes after one."""
    model = parsed(
        """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[3,3] x) => (float[3,3] y) {
            a = com.microsoft.Inverse(x) b = Neg(a) y = com.microsoft.Trilu(b)
        }"""
    )
    graph, written = round_trip(model)
    assert operators(graph) == ["Opaque", "Neg", "Opaque"]
    assert [node.op_type for node in written.graph.node] == ["Inverse", "Neg", "Trilu"]


@pytest.mark.parametrize("described", [False, True])
def test_operators_that_the_opset_does_not_have_pass_through(described):
    """onnxruntime has a LayerNormalization of its own, in ONNX's domain, before opset 17."""
    model = parsed(
        """g (float[2,3] x, float[3] w) => (float[2,3] y) {
            a = Neg(x) n = LayerNormalization <axis = -1> (a, w) y = Neg(n)
        }"""
    )
    model.opset_import[0].version = 13
    if described:
        model.graph.value_info.append(helper.make_tensor_value_info("n", 1, [2, 3]))
    assert operators(round_trip(model)[0]) == ["Neg", "Opaque", "Neg"]


def test_types_that_only_the_file_knows():
    """Where onnxruntime does not know the operator either, only the file can tell what follows."""
    model = parsed("g (float[2] x) => (float[2] y) { a = Neg(x) y = Neg(a) }")
    model.graph.node[0].domain = "own"
    model.opset_import.add(domain="own", version=1)
    assert operators(read(model)) == ["Opaque", "Opaque"]
    model.graph.value_info.append(helper.make_tensor_value_info("a", 1, [2]))
    assert operators(read(model)) == ["Opaque", "Neg"]


def test_a_squeeze_of_no_axes_passes_through():
    """onnx squeezes none of them, onnxruntime all of size 1."""
    model = parsed(
        """g (float[1,3] x) => (float[1,3] y) <int64[0] none = {}> {
            a = Neg(x) b = Squeeze(a, none) y = Neg(b)
        }"""
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    _, written = round_trip(model)
    assert run(written, random_inputs(model))[0].shape == (3,)


@pytest.mark.parametrize(("domain", "op"), [("", "Relu"), ("com.microsoft", "Gelu")])
def test_functions_by_the_name_of_an_operator(domain, op):
    """onnxruntime runs its operator, not the function."""
    model = parsed("g (float[2] x) => (float[2] y) { a = Neg(x) b = Abs(a) y = Neg(b) }")
    model.graph.node[1].op_type, model.graph.node[1].domain = op, domain
    opsets = list(model.opset_import)
    double = helper.make_node("Add", ["p", "p"], ["q"])
    model.functions.append(helper.make_function(domain, op, ["p"], ["q"], [double], opsets))
    if domain:
        model.opset_import.add(domain=domain, version=1)
    assert operators(round_trip(model)[0]) == ["Neg", "Opaque", "Neg"]


def test_references_to_attributes_of_functions_outside_of_functions():
    """onnxruntime takes the default instead: LeakyRelu's 0.01."""
    model = parsed("g (float[2] x) => (float[2] y) { a = Neg(x) y = LeakyRelu(a) }")
    model.graph.node[1].attribute.add(name="alpha", ref_attr_name="slope", type=1)
    assert operators(round_trip(model, {"x": np.float32([1, -2])})[0]) == ["Neg", "Opaque"]


def test_a_node_that_gives_nothing_is_no_error():
    model = parsed("g (float[2] x) => (float[2] y) { y = Neg(x) }")
    model.opset_import.add(domain="own", version=1)
    model.graph.node.append(helper.make_node("Print", ["y"], [], domain="own"))
    assert operators(read(model)) == ["Neg"]


def test_quantised_weights_stay_int8():
    """A dense layer as quantisers write it: int8 weights, and activations in uint8 between ops."""
    model = with_weights(
        """g (float[2,4] x, int8[4,3] w) => (float[2,3] y)
        <float s = {0.05}, uint8 z = {128}, float t = {0.02}, int8 zero = {0}> {
            q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
            v = DequantizeLinear(w, t, zero)
            m = MatMul(d, v) r = Relu(m) y = Relu(r)
        }""",
        w=np.arange(-6, 6, dtype=np.int8).reshape(4, 3) * 9,
    )
    _, written = round_trip(model, {"x": np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)})
    held = {tensor.name: tensor.data_type for tensor in written.graph.initializer}
    assert held["w"] == onnx.TensorProto.INT8
    assert not {"v"} & held.keys()


def test_float16_stays_float16():
    model = with_weights(
        "g (float16[2,3] x, float16[3] w) => (float16[2,3] y) { a = Mul(x, w) y = Relu(a) }",
        w=np.array([1, -2, 0.5], np.float16),
    )
    graph, written = round_trip(model, {"x": np.array([[1, 2, 3], [-4, -5, -6]], np.float16)})
    assert operators(graph) == ["Mul", "Relu"]
    assert [tensor.data_type for tensor in written.graph.initializer] == [10]
