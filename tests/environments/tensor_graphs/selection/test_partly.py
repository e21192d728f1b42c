"""A part of the nodes is quantised as onnxruntime would quantise only these."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.selection.partly import with_nodes
from environments.tensor_graphs.selection.quantization import prepared, quantised
from tests.environments.tensor_graphs.small_models import convolutions, write, written

WEIGHT = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)


def branching() -> onnx.ModelProto:
    """Two products of one input, and a third of both results, one of which is an output too."""
    nodes = "a = MatMul(x, v) b = MatMul(x, w) c = Add(a, b) r = Relu(c) y = MatMul(r, w)"
    shape = [8, 64]
    return written(nodes, {"v": WEIGHT, "w": WEIGHT}, {"x": shape}, {"a": shape, "y": shape})


@pytest.mark.parametrize(
    ("make_model", "kind"),
    [(branching, "dynamic"), (branching, "static"), (convolutions, "static")],
)
def test_some_nodes_are_as_if_only_they_had_been_quantised(make_model, kind, tmp_path):
    model, on = prepared(write(tmp_path / "m.onnx", make_model())), backend()
    inputs = random_inputs(model)
    weights = {weight.name for weight in model.graph.initializer}
    nodes = [node.name for node in model.graph.node if {*node.input[1:2]} & weights]
    everything = quantised(model, kind, nodes, [inputs])
    before = on.open(model).run(inputs)
    for chosen in ([], nodes[:1], nodes[1:], nodes):
        some = with_nodes(model, everything, chosen)
        onnx.checker.check_model(some)
        actual = on.open(some).run(inputs)
        expected = before
        if chosen:
            expected = on.open(quantised(model, kind, chosen, [inputs])).run(inputs)
            assert any((expected[name] != before[name]).any() for name in before)
        for name, value in expected.items():
            np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=1e-5)
