"""Models are read: canonical forms, computed shapes, constants."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from environments.errors import UserError
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import Ref
from environments.tensor_graphs.onnx_io import read, write
from environments.tensor_graphs.operators import building
from tests.environments.tensor_graphs.onnx_io.running import (
    equal,
    only,
    operators,
    parsed,
    random_inputs,
    round_trip,
    run,
)


def check_round_trip(text: str, opset: int = 17, unknown: int = 2) -> Graph:
    """Read a model, and check that it computes the same after it is written again."""
    model = parsed(text, opset=opset)
    return round_trip(model, random_inputs(model, unknown))[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("""g (float[2,3] x) => (float[2,3] y)
            { a = Identity(x) b = Dropout(a) c = Cast <to = 1> (b) d = Relu(c) y = Identity(d) }""",
         ["Relu"]),
        ("g (float[2] x, float[2] y, float[2] z) => (float[2] s) { s = Sum(x, y, z) }",
         ["Add", "Add"]),
        # Automatic padding is written out, above and on the left or below and on the right.
        ("""g (float[1,2,8,8] x, float[3,2,3,3] w) => (float[1,3,a,b] y) {
            c = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w)
            y = AveragePool <auto_pad = "SAME_LOWER", kernel_shape = [2, 2]> (c)
        }""", ["Conv", "AveragePool"]),
        # Operators mean something else for tensors without elements.
        ("""<ir_version: 8, opset_import: ["" : 11]>
            g (float[0,3] x) => (float[1,3] y) { y = ReduceSum <axes = [0]> (x) }""", ["Opaque"]),
        # Shapes are computed from sizes that are known.
        ("""g (float[2,6] x) => (float[a,b,c] y) <int64[1] zero = {0}, int64[1] three = {3}> {
                s = Shape(x) n = Gather(s, zero) m = Mul(three, three) k = Div(m, three)
                r = Constant <value_ints = [-1]> () t = Concat <axis = 0> (n, k, r)
                y = Reshape(x, t)
            }""", ["Reshape"]),
        # As PyTorch writes x.expand(-1, 4): Where(shape == -1, 1, shape) in integers.
        ("""g (float[n,1] x) => (float[n,4] y)
            <int64[1] minus = {-1}, int64[1] four = {4}, int64[2] given = {-1, 4}> {
                s = Shape <start = 0, end = 1> (x) wanted = Concat <axis = 0> (s, four)
                isit = Equal(given, minus) shape = Where(isit, wanted, given) y = Expand(x, shape)
            }""", ["Expand"]),
        # A second output may be left out only if nothing uses it.
        ("""g (float[1,1,4,4] x) => (float[1,1,2,2] y)
            { y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }""", ["MaxPool"]),
        ("""g (float[1,1,4,4] x) => (float[1,1,2,2] y, int64[1,1,2,2] i)
            { y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }""", ["Opaque"]),
        # With several open sizes a Reshape cannot be written, but Squeeze and Unsqueeze can.
        ("""<ir_version: 8, opset_import: ["" : 9]> g (float[N,1,M,K,L] x) => (float[N,M,K,L] y)
            { y = Squeeze <axes = [1]> (x) }""", ["Reshape"]),
        ("""<ir_version: 8, opset_import: ["" : 9]>
            g (float[N,1,M,K,L] x) => (float[A,N,B,C,M,K,L] y)
            { y = Unsqueeze <axes = [0, 2]> (x) }""", ["Reshape"]),
    ],
)  # fmt: skip
def test_nodes_are_read_as(text, expected):
    assert operators(check_round_trip(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A Dropout in training.
        ("""g (float[2,3] x) => (float[2,3] y) <float half = {0.5}, bool yes = {1}>
            { y = Dropout(x, half, yes) }""", ["Opaque"]),
        # Equal nodes are one, but not random ones.
        ("""g (float[2] x) => (float[2] y) {
                a = Relu(x) b = Relu(x) c = Celu(x) d = Celu(x)
                e = RandomNormalLike(x) f = RandomNormalLike(x)
                y = Sum(a, b, c, d, e, f)
            }""", ["Add"] * 5 + ["Opaque"] * 3 + ["Relu"]),
        # Those of other domains may be random.
        ("""<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
            g (float[2] x) => (float[2] a, float[2] b) { a = mine.Draw(x) b = mine.Draw(x) }""",
         ["Opaque", "Opaque"]),
    ],
)  # fmt: skip
def test_random_nodes_are_read_as(text, expected):
    assert sorted(operators(read(parsed(text)))) == expected


def test_nodes_may_be_in_any_order():
    model = parsed("g (float[2] x) => (float[2] y) { a = Relu(x) y = Tanh(a) }")
    model.graph.node.reverse()
    assert operators(read(model)) == ["Relu", "Tanh"]


SPLIT_HEADS = """g (float[batch,length,8] x) => (float[batch,2,length,4] y)
<int64 zero = {0}, int64 one = {1}, int64[1] two = {2}, int64[1] four = {4},
 int64[1] first = {0}> {
    s = Shape(x)
    n = Gather(s, zero)
    s1 = Shape(x)
    m = Gather(s1, one)
    n1 = Unsqueeze(n, first)
    m1 = Unsqueeze(m, first)
    shape = Concat <axis = 0> (n1, m1, two, four)
    v = Reshape(x, shape)
    y = Transpose <perm = [0, 2, 1, 3]> (v)
}"""


@pytest.mark.parametrize("size", [1, 2, 5])
def test_shapes_with_unknown_sizes_are_computed_in_names(size):
    """As PyTorch writes x.view(batch, length, 2, 4).transpose(1, 2)."""
    graph = check_round_trip(SPLIT_HEADS, unknown=size)
    assert operators(graph) == ["Reshape", "Transpose"]
    assert only(graph, "Reshape").attribute("shape") == ("batch", "length", 2, 4)


def test_names_of_sizes_that_look_like_computed_ones_are_only_names():
    """A size that the file calls 2*n is not twice the size n."""
    model = parsed("g (float[n] x, float[m] z) => (float[n] y, float[m] t) {y=Relu(x) t=Relu(z)}")
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "2*n"
    model.graph.output[1].type.tensor_type.shape.dim[0].dim_param = "2*n"
    graph = read(model)
    sizes = {graph.nodes[n].types[0].shape for n in graph.inputs}
    assert sizes == {("n",), ("size_0",)}
    assert write(graph).graph.output[1].type.tensor_type.shape.dim[0].dim_param == "2*n"


def test_initialisers_are_inputs_only_in_old_formats():
    """Before format 4 each initialiser had to be among the inputs."""
    text = "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Mul(x, w) }"
    old = read(parsed(f'<ir_version: 3, opset_import: ["" : 13]> {text}'))
    assert len(old.inputs) == 1
    written = write(old)
    assert written.ir_version == 3
    assert [info.name for info in written.graph.input] == ["x", "w"]
    onnx.checker.check_model(written)
    new = parsed(f'<ir_version: 8, opset_import: ["" : 13]> {text}')
    graph = read(new)
    assert len(graph.inputs) == 2
    written = write(graph)
    inputs = {"x": np.ones(2, np.float32)}
    assert run(written, inputs)[0].tolist() == [1, 2]
    assert run(written, inputs | {"w": np.full(2, 5, np.float32)})[0].tolist() == [5, 5]


OLDER_FORMS = (
    (7, "y = Clip <min = -0.5, max = 2.0> (x)", {"min": -0.5, "max": 2.0}),
    (10, "y = Clip <max = 2.0> (x)", {"max": 2.0}),
    (9, 'y = Pad <mode = "constant", pads = [0, 1, 0, 0, 0, 2], value = 3.0> (x)',
     {"pads": [0, 1, 0, 0, 0, 2], "value": 3.0}),
    (9, "y = Slice <starts = [0, 1], ends = [1, 3], axes = [0, 2]> (x)",
     {"starts": [0, 1], "axes": [0, 2]}),
    (12, "y, z = Split <axis = 2, split = [1, 3]> (x)", {"split": [1, 3]}),
    (12, "y = ReduceSum <axes = [1]> (x)", {"axes": [1]}),
    (11, "y = Softmax <axis = 2> (x)", {"axis": 2}),
)  # fmt: skip


@pytest.mark.parametrize(("opset", "node", "attributes"), OLDER_FORMS)
def test_older_opsets_are_kept(opset, node, attributes):
    """What newer opsets give as an input is an attribute in the file again."""
    text = f"g (float[2,1,4] x) => (float[A,B,C] y) {{ {node} }}"
    model = parsed(f'<ir_version: 6, opset_import: ["" : {opset}]> {text}')
    graph, written = round_trip(model)
    assert "Opaque" not in operators(graph) and not written.graph.initializer
    assert (written.opset_import[0].version, written.ir_version) == (opset, 6)
    (lowered,) = written.graph.node
    values = {
        attribute.name: onnx.helper.get_attribute_value(attribute)
        for attribute in lowered.attribute
    }
    assert {name: values[name] for name in attributes} == attributes


def test_training_information_is_left_out():
    model = parsed("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.training_info.add().algorithm.name = "descent"
    assert not write(read(model)).training_info
    assert model.training_info


def test_gemm_has_a_bias_in_old_opsets():
    """A rule may make one without; before opset 11 the bias is not optional."""
    text = "g (float[2,3] x, float[3,4] w) => (float[2,4] y) { y = MatMul(x, w) }"
    graph = read(parsed(f'<ir_version: 5, opset_import: ["" : 9]> {text}'))
    edit = graph.edit()
    (product,) = (n for n, node in graph.nodes.items() if node.op == "MatMul")
    inputs = [ref for ref in graph.nodes[product].inputs if ref]
    (gemm,) = building.add(edit, "Gemm", *inputs)
    edit.replace({Ref(product): gemm})
    written = write(edit.finish()[0])
    x, w = np.eye(2, 3, dtype=np.float32), np.arange(12, dtype=np.float32).reshape(3, 4)
    assert run(written, {"x": x, "w": w})[0].tolist() == w[:2].tolist()


def test_shape_arithmetic_at_fixed_sizes():
    """A model of fixed sizes says so, and folds even what only these sizes make constant."""
    model = parsed(
        """g (float[N,S] x) => (float[N,S] y) {
            n = Shape <start = 1> (x)
            f = Cast <to = 1> (n)
            r = Sqrt(f)
            y = Div(x, r)
        }"""
    )
    open_nodes = [node.op_type for node in write(read(model)).graph.node]
    assert open_nodes == ["Shape", "Cast", "Sqrt", "Div"]
    frozen = write(read(model, shapes={"x": (2, 16)}))
    assert [node.op_type for node in frozen.graph.node] == ["Div"]
    (info,) = frozen.graph.input
    assert [size.dim_value for size in info.type.tensor_type.shape.dim] == [2, 16]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    inputs = {"x": np.arange(32, dtype=np.float32).reshape(2, 16)}
    assert equal(run(model, inputs), run(frozen, inputs))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": (1,)}, "expected shapes of tensors among x; found z"),
        ({"x": (2, 3)}, "input 'x': expected a shape that fits .*, found .2, 3.; give each"),
        ({"x": (2, 3, 7)}, "input 'x': expected a shape that fits .*8.*, found .2, 3, 7."),
    ],
)
def test_shapes_that_inputs_cannot_have(shapes, message):
    with pytest.raises(UserError, match=message):
        read(parsed(SPLIT_HEADS), shapes=shapes)


@pytest.mark.parametrize("names", [("", ""), ("ai.onnx", ""), ("", "ai.onnx")])
@pytest.mark.parametrize("versions", [(11, 13), (13, 11)])
def test_an_opset_that_is_named_twice_has_the_last_version(names, versions):
    """Until opset 12 Softmax took all axes from this one on together: its outputs add up to 2."""
    model = parsed("g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax <axis = 1> (x) }")
    del model.opset_import[:]
    for name, version in zip(names, versions, strict=True):
        model.opset_import.add(domain=name, version=version)
    graph = read(model)
    assert graph.header.opset == versions[1]
    assert any(node.op == "Softmax" for node in graph.nodes.values()) == (versions[1] == 13)
    (y,) = run(write(graph), random_inputs(model))
    assert y.sum() == pytest.approx(2 if versions[1] == 11 else 2 * 4)
