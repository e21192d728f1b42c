"""What onnxruntime runs is read, even where onnx refuses it or knows no way to convert it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from environments.errors import UserError
from environments.tensor_graphs.onnx_io import read, save, write
from tests.environments.tensor_graphs.onnx_io.running import (
    equal,
    operators,
    parsed,
    round_trip,
    run,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The file gives another shape for the output than it has.
        ("(float[2,3] x) => (float[7,3] y) { a = Relu(x) y = Relu(a) }", ["Relu", "Relu"]),
        # onnxruntime loads it, and says when it runs it that no input fits; what follows is read.
        ("(float[2,3] x) => (float[7] y) <int64[1] s = {7}> { a = Reshape(x, s) y = Relu(a) }",
         ["Reshape", "Relu"]),
    ],
)  # fmt: skip
def test_shapes_that_onnx_refuses(text, expected):
    graph = read(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}'))
    assert [node.op_type for node in write(graph).graph.node] == expected
    assert operators(graph)[-1] == "Relu"


@pytest.mark.parametrize("opset", [1, 6])
def test_an_opset_from_which_onnx_does_not_convert(opset):
    """Its operators meant something else then, so all of them stay as they are."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 3, opset_import: ["" : {opset}]>
        g (float[2,3] x, float[3,4] w) => (float[2,4] y)
            {{ a = MatMul(x, w) y = Softmax <axis = 0> (a) }}"""
    )
    weights = np.arange(12, dtype=np.float32).reshape(3, 4) / 9
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    graph = read(model)
    assert operators(graph) == ["Opaque", "Opaque"]
    written = write(graph)
    assert written.opset_import[0].version == opset
    assert [node.op_type for node in written.graph.node] == ["MatMul", "Softmax"]
    x = {"x": np.array([[1, 2, 3], [-1, 0, 1]], np.float32)}
    assert equal(run(model, x), run(written, x))
    # Until opset 12 Softmax took all axes from this one on together: over all eight numbers.
    assert run(written, x)[0].sum() == pytest.approx(1)


def test_an_opset_that_onnx_does_not_know_yet(monkeypatch):
    model = parsed("g (float[2,3] x) => (float[2,3] y) { a = Relu(x) y = Relu(a) }")
    monkeypatch.setattr(onnx.defs, "onnx_opset_version", lambda: 16)
    graph, _ = round_trip(model)
    assert operators(graph) == ["Opaque", "Opaque"]


def test_an_input_of_unknown_rank():
    model = parsed("g (float[2] x) => (float[2] y) { a = Neg(x) y = Relu(a) }")
    for info in (model.graph.input[0], model.graph.output[0]):
        info.type.tensor_type.ClearField("shape")
    written = write(read(model))
    x = {"x": np.ones((3, 1, 2), np.float32)}
    assert equal(run(model, x), run(written, x))


def test_weights_in_another_file_are_found_when_onnxruntime_is_asked(tmp_path):
    """The opset is one from which onnx does not convert, and the weights are in another file."""
    model = onnx.parser.parse_model(
        """<ir_version: 4, opset_import: ["" : 6]>
        g (float[1,64] x, float[64,1] w) => (float[1,1] y) { y = MatMul(x, w) }"""
    )
    del model.graph.input[1]
    weights = np.arange(64, dtype=np.float32).reshape(64, 1)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, size_threshold=0, location="w.data")
    save(read(path), tmp_path / "written.onnx")
    x = {"x": np.ones((1, 64), np.float32)}
    assert run(tmp_path / "written.onnx", x)[0].item() == 64 * 63 / 2
    (tmp_path / "w.data").unlink()
    with pytest.raises(UserError):
        read(path)


FUNCTIONS = """<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
    g (bool yes, float[2] x) => (float[2] y) {
        a = mine.Twice <by = 2.0> (x)
        y = If (yes) <
            then_branch = t () => (float[2] u) { u = mine.Twice <by = 3.0> (a) },
            else_branch = e () => (float[2] v) { v = Neg(a) }
        >
    }
    <domain: "mine", opset_import: ["" : 17]> Twice <by> (x) => (y)
        { n = Constant <value_float: float = @by> () y = Mul(x, n) }"""


def test_functions_of_the_model_stand_where_they_are_called():
    model = onnx.parser.parse_model(FUNCTIONS)
    graph = read(model)
    assert sorted(operators(graph)) == ["Mul", "Mul", "Neg", "Opaque"]
    written = write(graph)
    assert not written.functions
    for yes, expected in ((True, [6, -12]), (False, [-2, 4])):
        inputs = {"yes": np.array(yes), "x": np.array([1, -2], np.float32)}
        assert run(model, inputs)[0].tolist() == run(written, inputs)[0].tolist() == expected
