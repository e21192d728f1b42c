"""Opaque nodes are written as they were read."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from environments.tensor_graphs.onnx_io import read, write
from tests.environments.tensor_graphs.onnx_io.running import equal, parsed, random_inputs, run


def test_sequences_pass_through():
    model = parsed(
        """g (float[2] x, float[2] z) => (float[4] y) {
            s = SequenceConstruct(x, z)
            y = ConcatFromSequence <axis = 0> (s)
        }"""
    )
    inputs = random_inputs(model)
    assert equal(run(model, inputs), run(write(read(model)), inputs))


def test_types_that_numpy_has_not_pass_through():
    model = parsed(
        """g (float[3] x, bfloat16[3] w) => (float[3] y) {
            a = Cast <to = 16> (x)
            b = Cast <to = 1> (w)
            c = Cast <to = 1> (a)
            y = Mul(b, c)
        }"""
    )
    del model.graph.input[1]
    model.graph.initializer.append(helper.make_tensor("w", 16, [3], [1.0, 2.0, -0.5]))
    inputs = random_inputs(model)
    assert equal(run(model, inputs), run(write(read(model)), inputs))


def test_outputs_that_are_left_out_stay_so():
    """LSTM has three outputs; only the last one has a name."""
    weights = {
        "w": np.ones((1, 16, 3), np.float32),
        "r": np.ones((1, 16, 4), np.float32),
    }
    node = helper.make_node("LSTM", ["x", "w", "r"], ["", "", "c"], hidden_size=4)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", 1, [2, 1, 3])],
        [helper.make_tensor_value_info("c", 1, [1, 1, 4])],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opset = [helper.make_opsetid("", 14)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    written = write(read(model))
    assert list(written.graph.node[0].output) == ["", "", "c"]
    inputs = random_inputs(model)
    assert equal(run(model, inputs), run(written, inputs))
