"""Files that are no valid models are refused by one line that says why."""

from __future__ import annotations

import onnx
import pytest

from environments.errors import UserError
from environments.tensor_graphs.onnx_io import read
from tests.environments.tensor_graphs.onnx_io.running import parsed

CHAIN = "g (float[2,3] x) => (float[2,3] y) { a = Relu(x) b = Tanh(a) y = Abs(b) }"


def refusal(source) -> str:
    """Return the line that says why a model is refused."""
    with pytest.raises(UserError) as caught:
        read(source)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_no_file(tmp_path):
    assert refusal(tmp_path / "none.onnx").startswith("no file ")
    assert "found a directory" in refusal(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"hello, this is not a model\n", b"\x00" * 64, b"PK\x03\x04" + b"a" * 99]
)
def test_not_a_model(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert "not an ONNX model" in refusal(path)
    assert "not an ONNX model" in refusal(content)


def test_truncated_at_any_place():
    content = parsed(CHAIN).SerializeToString()
    for length in range(len(content)):
        refusal(content[:length])


def rewire(model, **changes):
    """Replace the input of some nodes."""
    for node in model.graph.node:
        if node.op_type in changes:
            node.input[0] = changes[node.op_type]


def weight(model, **fields):
    model.graph.initializer.add(**{"name": "w", "data_type": 1, "dims": [2, 3], **fields})


BROKEN = (
    (lambda model: setattr(model.opset_import[0], "version", 99),
     "opset 99 and format 8 are newer than the installed onnx"),
    (lambda model: setattr(model, "ir_version", 1000), "newer than the installed onnx"),
    (lambda model: rewire(model, Relu="b"), "has a cycle: the Relu"),
    (lambda model: rewire(model, Tanh="b"), "depends on itself"),
    (lambda model: rewire(model, Tanh="weight"),
     "the Tanh that gives 'b' uses 'weight', which no input, initialiser or node"),
    (lambda model: setattr(model.graph.output[0], "name", "z"),
     "output 'z' of the model is given by no node"),
    (lambda model: model.graph.ClearField("output"), "no outputs"),
    (lambda model: (weight(model, dims=[0]), weight(model, dims=[0])),
     "two values of the model are called 'w'"),
    (lambda model: (rewire(model, Abs="a"), model.graph.node[1].output.__setitem__(0, "a")),
     "two values of the model are called 'a'"),
    (lambda model: weight(model, raw_data=b"1234"),
     "tensor 'w' of shape [2, 3]: expected 24 bytes, found 4"),
    (lambda model: weight(model, float_data=[1.0]), "expected 6 elements, found 1"),
    (lambda model: weight(model, dims=[-2, 3]), "expected sizes of 0 or more"),
    (lambda model: weight(model, data_type=99), "element type 99 is unknown"),
    (lambda model: setattr(model.graph.node[1], "op_type", "Tangent"),
     "the model is not valid: No Op registered for Tangent"),
)  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BROKEN, ids=[row[1][:30] for row in BROKEN])
def test_a_broken_chain(change, message):
    model = parsed(CHAIN)
    change(model)
    assert message in refusal(model)


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2,3] x, float[4,5] w) => (float[2,5] y) { y = MatMul(x, w) }",
        "g (float[2,3] x) => (int64[2,3] y) { y = Relu(x) }",
        # On a stride of 0 onnx's inference would crash the process.
        "g (float[1,1,4,4] x) => (float[1,1,4,4] y)"
        " { y = AveragePool <kernel_shape = [2, 2], strides = [0, 1]> (x) }",
    ],
)
def test_shapes_and_types_that_do_not_fit(text):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    assert "shapes or types do not fit: " in refusal(model)


def test_a_name_that_is_not_utf_8():
    content = parsed(CHAIN).SerializeToString()
    assert "a name in it is no text" in refusal(content.replace(b"Tanh", b"Ta\xffh"))


def test_functions_that_call_each_other():
    """onnx would inline them until the stack overflows; F, which G calls twice, would be right."""
    text = """
    <ir_version: 8, opset_import: ["": 17, "own": 1]>
    g (float[2] x) => (float[2] y) { y = own.G(x) }
    <domain: "own", opset_import: ["": 17, "own": 1]>
    G (a) => (b) { c = own.F(a) b = own.F(c) }
    <domain: "own", opset_import: ["": 17, "own": 1]>
    F (a) => (b) { b = CALLED(a) }
    """
    assert len(read(onnx.parser.parse_model(text.replace("CALLED", "Relu"))).nodes) > 0
    bad = onnx.parser.parse_model(text.replace("CALLED", "own.G"))
    assert refusal(bad) == "the model: a damaged ONNX model: its function 'G' calls itself"
