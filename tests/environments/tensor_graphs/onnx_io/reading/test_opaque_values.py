"""What nodes without a canonical form give is worked out where onnx's inference knows less."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.onnx_io import read
from tests.environments.tensor_graphs.onnx_io.running import (
    only,
    parsed,
    round_trip,
    run,
    with_weights,
)

X = np.arange(24, dtype=np.float32).reshape(4, 6)
IMAGES = np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 2, 2, 5)


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ("target = Mod(a, b)", "int64[2] a = {11, 17}, int64[2] b = {8, 9}"),
        ("target, places = TopK(a, two)", "int64[3] a = {8, 1, 3}, int64[1] two = {2}"),
        (
            "c = Cast<to = 7>(a) target = Mod(c, b)",
            "float[2] a = {11.0, 17.0}, int64[2] b = {8, 9}",
        ),
    ],
)
def test_a_shape_that_any_operator_computes_of_constants_is_known(nodes, constants):
    model = parsed(
        f"g (float[4,6] x) => (float[a,b] y) <{constants}> "
        f"{{ {nodes} r = Reshape(x, target) y = Relu(r) }}"
    )
    graph, _ = round_trip(model, {"x": X})
    kinds = {node.op: node.types[0] for node in graph.nodes.values()}
    assert "Opaque" not in kinds
    (expected,) = run(model, {"x": X})
    assert kinds["Relu"].shape == expected.shape


@pytest.mark.parametrize(
    "nodes",
    [
        "t = Cast<to = 7>(x) f = Mod(t, a) g = Cast<to = 1>(f) y = Relu(g)",
        "g = RandomUniformLike<dtype = 1>(b) y = Relu(g)",
        "c = OneHot(places, many, ends) f = Cast<to = 1>(c) y = MatMul(x, f)",
    ],
)
def test_what_depends_on_an_input_or_on_chance_or_is_long_is_not_computed(nodes):
    model = parsed(
        f"g (float[4,6] x) => (float[p,q] y) <int64[1] a = {{2}}, float[1,1] b = {{2.0}}, "
        f"int64[6] places = {{0, 1, 2, 3, 4, 5}}, int64 many = {{1000}}, int64[2] ends = {{0, 1}}> "
        f"{{ {nodes} }}"
    )
    assert "Opaque" in [node.op for node in read(model).nodes.values()]


def opaque_shape(graph: Graph):
    """The shape of the first output of the only Opaque node."""
    return only(graph, "Opaque").types[0].shape


def resize(shape: str, scales: list[float]):
    return with_weights(
        f"""g (float[{shape}] x, float[4] scales) => (float[a,b,c,d] y)
            {{ y = Resize <mode = "nearest", nearest_mode = "floor",
                coordinate_transformation_mode = "asymmetric"> (x, , scales) }}""",
        scales=np.array(scales, np.float32),
    )


def test_exact_factors_alone_say_how_large_an_open_size_becomes():
    exact = read(resize("N,3,H,W", [1, 1, 2, 0.5]))
    assert opaque_shape(exact) == ("N", 3, "2*H", "((W)//2)")
    (*_, height, width) = opaque_shape(read(resize("1,3,H,W", [1, 1, 1.5, 0.3])))
    assert {height, width}.isdisjoint({"H", "W"})
    assert isinstance(height, str) and isinstance(width, str)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=2),
    st.lists(st.floats(0.25, 4, width=32), min_size=2, max_size=2),
)
def test_resized_as_onnxruntime_does(sizes, factors):
    sizes = [
        max(size, int(np.ceil(1 / factor))) for size, factor in zip(sizes, factors, strict=True)
    ]
    model = resize(",".join(map(str, [1, 1, *sizes])), [1, 1, *factors])
    (y,) = run(model, {"x": np.zeros((1, 1, *sizes), np.float32)})
    assert opaque_shape(read(model)) == y.shape


def test_flatten_with_two_open_sizes():
    """No Reshape can say it, but what follows knows that its input is a matrix."""
    model = parsed(
        """g (float[N,2,H,W] x) => (float[A,B] y)
            { a = Flatten <axis = 2> (x) b = Relu(a) y = Relu(b) }"""
    )
    graph, _ = round_trip(model, {"x": IMAGES})
    assert opaque_shape(graph) == ("2*N", "H*W")
    assert sorted(node.op for node in graph.nodes.values()) == ["Input", "Opaque", "Relu", "Relu"]


def test_a_reshape_to_computed_sizes():
    """Reshape(Flatten(x), Shape(x)), as exporters write a Softmax of older opsets."""
    model = parsed(
        """g (float[N,2,H,W] x) => (float[N,2,H,W] y) {
            a = Flatten <axis = 2> (x) b = Softmax(a) s = Shape(x) c = Reshape(b, s) y = Relu(c)
        }"""
    )
    graph, _ = round_trip(model, {"x": IMAGES})
    assert only(graph, "Relu").types[0].shape == ("N", 2, "H", "W")
