"""Shapes of Opaque nodes are worked out where onnx knows only their rank."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.onnx_io import read
from tests.environments.tensor_graphs.onnx_io.running import parsed, round_trip, run


def opaque_shape(graph: Graph):
    """The shape of the first output of the only Opaque node."""
    (node,) = (node for node in graph.nodes.values() if node.op == "Opaque")
    return node.types[0].shape


def resize(shape: str, scales: list[float]):
    model = parsed(
        f"""g (float[{shape}] x, float[4] scales) => (float[a,b,c,d] y)
            {{ y = Resize <mode = "nearest", nearest_mode = "floor",
                coordinate_transformation_mode = "asymmetric"> (x, , scales) }}"""
    )
    del model.graph.input[1]
    factors = np.array(scales, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(factors, "scales"))
    return model


@pytest.mark.parametrize(
    ("shape", "scales", "expected"),
    [
        ("1,3,13,20", [1, 1, 2, 1.5], (1, 3, 26, 30)),
        ("N,3,H,W", [1, 1, 2, 0.5], ("N", 3, "2*H", "((W)//2)")),
    ],
)
def test_resized_by_factors(shape, scales, expected):
    assert opaque_shape(read(resize(shape, scales))) == expected


def test_a_factor_that_is_not_exact_says_nothing_about_an_open_size():
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
    graph, _ = round_trip(
        model, {"x": np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 2, 2, 5)}
    )
    assert opaque_shape(graph) == ("2*N", "H*W")
    assert sorted(node.op for node in graph.nodes.values()) == ["Input", "Opaque", "Relu", "Relu"]


def test_a_reshape_to_computed_sizes():
    """Reshape(Flatten(x), Shape(x)), as exporters write a Softmax of older opsets."""
    model = parsed(
        """g (float[N,2,H,W] x) => (float[N,2,H,W] y) {
            a = Flatten <axis = 2> (x) b = Softmax(a) s = Shape(x) c = Reshape(b, s) y = Relu(c)
        }"""
    )
    graph, _ = round_trip(
        model, {"x": np.linspace(-1, 1, 60, dtype=np.float32).reshape(3, 2, 2, 5)}
    )
    (relu,) = (node for node in graph.nodes.values() if node.op == "Relu")
    assert relu.types[0].shape == ("N", 2, "H", "W")
