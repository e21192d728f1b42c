"""What depends on short constants alone is known, whatever operators compute it."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs.onnx_io import read
from tests.environments.tensor_graphs.onnx_io.running import parsed, round_trip, run

X = np.arange(24, dtype=np.float32).reshape(4, 6)


def reshaped(nodes: str, constants: str):
    """A Reshape of x to a target that nodes compute from constants, and a Relu after it."""
    return parsed(
        f"g (float[4,6] x) => (float[a,b] y) <{constants}> "
        f"{{ {nodes} r = Reshape(x, target) y = Relu(r) }}"
    )


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ("target = Mod(a, b)", "int64[2] a = {11, 17}, int64[2] b = {8, 9}"),
        ("target = CumSum(a, zero)", "int64[2] a = {3, 5}, int64 zero = {0}"),
        ("target, places = TopK(a, two)", "int64[3] a = {8, 1, 3}, int64[1] two = {2}"),
        (
            "c = Cast<to = 7>(a) target = Mod(c, b)",
            "float[2] a = {11.0, 17.0}, int64[2] b = {8, 9}",
        ),
    ],
)
def test_a_shape_that_any_operator_computes_of_constants_is_known(nodes, constants):
    model = reshaped(nodes, constants)
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
