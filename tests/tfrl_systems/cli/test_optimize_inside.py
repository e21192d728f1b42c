"""`tfrl optimize` on models whose work is inside a node, or of types that few models have."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.environments.tensor_graphs.small_models import adapter, write

# The same on every machine, and nothing is measured for it.
QUICK = ("--objective", "analytic", "--expansions", "300")


def in_both_branches(model: onnx.ModelProto) -> onnx.ModelProto:
    """An If that computes the model, and otherwise the model of the negated input."""
    outer = onnx.ModelProto()
    outer.CopyFrom(model)
    for field in ("node", "initializer"):
        outer.graph.ClearField(field)
    branches = []
    for negated in (False, True):
        branch = onnx.GraphProto()
        branch.CopyFrom(model.graph)
        del branch.input[:]
        name = model.graph.input[0].name
        if negated:
            for node in branch.node:
                for place, one in enumerate(node.input):
                    node.input[place] = "negated" if one == name else one
            branch.node.insert(0, onnx.helper.make_node("Neg", [name], ["negated"]))
        for tensor in branch.initializer:
            tensor.name += f"_{negated}"
        weights = {tensor.name for tensor in branch.initializer}
        for node in branch.node:
            for place, one in enumerate(node.input):
                if f"{one}_{negated}" in weights:
                    node.input[place] = f"{one}_{negated}"
        # Names of values are used once in a model; those of outputs are the If's own.
        for node in branch.node:
            for names in (node.input, node.output):
                for place, one in enumerate(names):
                    if one not in weights and one != name:
                        names[place] = f"{one}_{negated}"
        for one in branch.output:
            one.name = f"{one.name}_{negated}"
        branches.append(branch)
    outer.graph.input.append(onnx.helper.make_tensor_value_info("yes", 9, []))
    outputs = [one.name for one in model.graph.output]
    straight, negative = branches
    outer.graph.node.append(
        onnx.helper.make_node("If", ["yes"], outputs, then_branch=straight, else_branch=negative)
    )
    onnx.checker.check_model(outer, full_check=True)
    return outer


@pytest.mark.parametrize("yes", [True, False])
def test_a_model_that_is_one_if_becomes_faster(yes, tmp_path, tfrl):
    """Two products out of three go, in both branches; that is measured on any machine."""
    model, out = write(tmp_path / "m.onnx", in_both_branches(adapter())), tmp_path / "fast.onnx"
    x = np.random.default_rng(1).normal(size=(64, 192)).astype(np.float32)
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, x=x, yes=np.array(yes))
    ran = tfrl(
        *("optimize", model, "-o", out, "--json", "--measure-seconds", "0.4", "--inputs", inputs),
        *QUICK,
    )
    assert ran.status == 0, ran.err
    assert ran.json["gain"] is True and ran.json["measured_ratio"] < 0.9
    fast = onnx.load(out)
    onnx.checker.check_model(fast, full_check=True)
    assert [node.op_type for node in fast.graph.node] == ["If"]
    for branch in (attribute.g for attribute in fast.graph.node[0].attribute):
        products = [node for node in branch.node if node.op_type in ("MatMul", "Gemm")]
        assert len(products) == 2
    for choice in (False, True):
        feeds = {"x": x, "yes": np.array(choice)}
        (expected,), (rewritten,) = (
            onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(
                None, feeds
            )
            for path in (model, out)
        )
        np.testing.assert_allclose(rewritten, expected, atol=1e-4 * np.abs(expected).max())


def of_few_types(dtype: str) -> onnx.ModelProto:
    """Relu, twice, after a product in float16, or after one of int8 weights."""
    if dtype == "float16":
        text = """g (float16[4,8] x, float16[8,8] w) => (float16[4,8] y)
            { m = MatMul(x, w) a = Relu(m) y = Relu(a) }"""
        weight = np.eye(8, dtype=np.float16)
    else:
        text = """g (float[4,8] x, int8[8,8] w) => (float[4,8] y)
            <float s = {0.05}, uint8 z = {128}, float t = {0.02}, int8 zero = {0}> {
                q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
                v = DequantizeLinear(w, t, zero) m = MatMul(d, v) a = Relu(m) y = Relu(a)
            }"""
        weight = np.arange(-32, 32, dtype=np.int8).reshape(8, 8)
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    del model.graph.input[1]
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_types_that_few_models_have(dtype, tmp_path, tfrl):
    model, out = write(tmp_path / "m.onnx", of_few_types(dtype)), tmp_path / "fast.onnx"
    ran = tfrl("optimize", model, "-o", out, "--json", "--no-measure", *QUICK)
    assert ran.status == 0, ran.err
    assert ran.json["gain"] is True
    fast = onnx.load(out)
    assert [node.op_type for node in fast.graph.node].count("Relu") == 1
    held = {tensor.name: tensor.data_type for tensor in fast.graph.initializer}
    assert held["w"] == (onnx.TensorProto.FLOAT16 if dtype == "float16" else onnx.TensorProto.INT8)
