"""Graphs are written: names, lowering, folded constants, models of single nodes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from environments.errors import UserError
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, TensorType
from environments.tensor_graphs.onnx_io import read, write
from environments.tensor_graphs.operators import building
from tests.environments.tensor_graphs.onnx_io.running import (
    parsed,
    round_trip,
    run,
    with_weights,
)


def test_a_model_in_canonical_form_is_written_as_it_was():
    """Node for node and name for name, with versions and documentation."""
    model = with_weights(
        """<ir_version: 8, opset_import: ["" : 17, "mine" : 2], producer_name: "us",
         producer_version: "3", domain: "ours", model_version: 7, doc_string: "all about it",
         metadata_props: ["author": "me", "size": "small"]>
        the_graph (float[N,3] the_input, float[1] unused, float[3,4] w, float[4] b)
            => (float[N,4] the_output) <float[N,4] between>
            { between = MatMul(the_input, w) the_output = Add(between, b) }""",
        w=np.ones((3, 4), np.float32),
        b=np.arange(4, dtype=np.float32),
    )
    model.graph.doc_string = "a graph"
    model.graph.input[0].doc_string = "an input"
    for node, name in zip(model.graph.node, ["one", "two"], strict=True):
        node.name, node.doc_string = name, f"node {name}"
        node.ClearField("domain")  # The parser says that it is "".
    assert write(read(model)) == model


def test_one_value_may_be_two_outputs_and_an_input_one():
    model = parsed(
        """g (float[2] x) => (float[2] a, float[2] b, float[2] c, float[2] d)
        <float[2] w = {1, 2}> {
            a = Relu(x) b = Relu(x) c = Identity(x) d = Identity(w)
        }"""
    )
    _, written = round_trip(model)
    onnx.checker.check_model(written, full_check=True)
    assert [output.name for output in written.graph.output] == ["a", "b", "c", "d"]


def test_a_name_of_an_output_goes_to_what_replaces_it():
    """Relu was called y. It is still used, but y is now the name of the output that replaced it."""
    graph = read(parsed("g (float[2] x) => (float[2] y, float[2] z) {y = Relu(x) z = Tanh(y)}"))
    relu, edit = graph.outputs[0], graph.edit()
    (neg,) = building.add(edit, "Neg", relu)
    edit.set_outputs([neg, graph.outputs[1]], ["y", "z"])
    written = write(edit.finish()[0])
    onnx.checker.check_model(written, full_check=True)
    x = np.array([1, -1], np.float32)
    y, z = run(written, {"x": x})
    assert y.tolist() == [-1, 0] and z.tolist() == np.tanh([1, 0], dtype=np.float32).tolist()


def test_constants_are_computed_once_in_double_precision():
    model = parsed(
        """g (float[2] x) => (float[2] y)
        <float[2] a = {0.1, 0.2}, float[2] b = {0.3, 0.7}, float[2] c = {3, 7}> {
            ab = Mul(a, b) abc = Mul(ab, c) y = Mul(x, abc)
        }"""
    )
    written = write(read(model))
    assert [node.op_type for node in written.graph.node] == ["Mul"]
    a, b, c = (np.array(v, np.float32).astype(float) for v in ([0.1, 0.2], [0.3, 0.7], [3, 7]))
    (tensor,) = written.graph.initializer
    assert numpy_helper.to_array(tensor).tolist() == (a * b * c).astype(np.float32).tolist()


def test_large_tensors_of_one_number_are_not_written_out():
    model = parsed(
        """g (float[512,512] x) => (float[512,512] y) <int64[2] size = {512, 512}> {
            w = ConstantOfShape <value = float[1] {2.0}> (size)
            v = Transpose <perm = [1, 0]> (w)
            y = MatMul(x, v)
        }"""
    )
    _, written = round_trip(model)
    assert written.ByteSize() < 1000


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        (("N", 4), (4, "N")),
        (("N", "M", 4), ("N", "4*M")),
        (("N", 1, "M"), ("N", "M")),
        (("N", "M"), (1, "N", 1, "M")),
        (("N", "M", 4), ("N", "M", 2, 2)),
        (("N", 1, "M", 1), (1, "N", "M")),
    ],
)
def test_reshapes_of_unknown_sizes(shape, target):
    edit = Graph().edit()
    x = edit.add(INPUT, [], (("name", "x"),), [TensorType("float32", shape)])
    edit.set_outputs(building.add(edit, "Reshape", x, shape=target), ["y"])
    written = write(edit.finish()[0])
    onnx.checker.check_model(written, full_check=True)
    sizes = {"N": 3, "M": 5, "4*M": 20}
    x = np.arange(np.prod([sizes.get(s, s) for s in shape]), dtype=np.float32)
    (y,) = run(written, {"x": x.reshape([sizes.get(s, s) for s in shape])})
    assert y.shape == tuple(sizes.get(s, s) for s in target)
    assert y.ravel().tolist() == x.tolist()


def test_an_operator_that_the_opset_lacks_is_refused():
    graph = read(parsed("g (float[2] x) => (float[2] y) { y = Relu(x) }"))
    edit = graph.edit()
    edit.set_outputs(building.add(edit, "Gelu", graph.outputs[0]), ["y"])
    with pytest.raises(UserError, match="opset 17 has no operator Gelu"):
        write(edit.finish()[0])
