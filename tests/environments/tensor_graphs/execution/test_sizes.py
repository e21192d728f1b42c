"""Open sizes have the file's names, and costs and inputs take the same numbers for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.errors import UserError
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.execution.sizes import OpenSizes, Sizes, together, with_inner_sizes
from tests.environments.tensor_graphs.execution.models import of_x, open_sizes, parsed, relus


def names(sizes: OpenSizes) -> list[str]:
    return [size.name for size in sizes.all]


@pytest.mark.parametrize(
    "shape, expected",
    [
        (["batch", 3], ["batch"]),
        (["p2o.DynamicDimension.0", "unk__214"], ["p2o.DynamicDimension.0", "unk__214"]),
        (["?", 3], ["?"]),
        (["?", 3, "?", "w"], ["x[0]", "x[2]", "w"]),  # these two need not be equal
        ([-1, 3, ""], ["x[0]", "x[2]"]),
        ([2, 3], []),
    ],
)
def test_names_are_those_of_the_file(shape, expected):
    assert names(open_sizes(x=shape)) == expected


def test_all_numbers_come_from_one_object():
    sizes = open_sizes(x=["batch", 3, "p2o.1"], y=["batch", "?"])
    point = sizes.at({"batch": 2, "p2o.1": 48, "y[1]": 5, "?": 5})
    assert point.to_json() == {"batch": 2, "p2o.1": 48, "?": 5}
    assert point.shapes == (("x", (2, 3, 48)), ("y", (2, 5)))
    assert str(point) == "batch=2, p2o.1=48, ?=5"
    with pytest.raises(ValueError, match=r"open sizes p2o\.1, \?"):
        sizes.at({"batch": 2})
    arrays = {"x": np.zeros((2, 3, 48)), "y": np.zeros((4, 5))}
    with pytest.raises(UserError, match=r"batch: .* one size .*, found x\[0\] is 2, y\[0\] is 4"):
        sizes.of_arrays(arrays)


def test_a_size_that_is_a_sum_of_others_follows_from_them():
    sizes = open_sizes(x=["past", 4], y=["new", 4], mask=["past + new"], z=["2*n"])
    assert [size.name for size in sizes.free] == ["past", "new", "2*n"]  # no size is called n
    point = sizes.at({"past": 3, "new": 2, "2*n": 8})
    assert dict(point.shapes) == {"x": (3, 4), "y": (2, 4), "mask": (5,), "z": (8,)}
    assert sizes.at({"past": 3, "new": 2, "past + new": 7, "2*n": 8}).shape("mask") == (7,)


SHAPES = st.lists(
    st.lists(
        st.sampled_from([3, -1, "", "?", "batch", "unk__214", "p2o.DynamicDimension.0", "size_0"]),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=3,
)


@given(SHAPES, st.data())
@settings(deadline=None)
def test_costs_and_inputs_have_the_same_sizes(shapes, data):
    """This failed where names were replaced: costs knew size_3, inputs the file's name."""
    model = relus(**{f"x{number}": shape for number, shape in enumerate(shapes)})
    graph = onnx_io.read(model)
    sizes = OpenSizes(graph)
    numbers = {size.name: data.draw(st.integers(1, 9), size.name) for size in sizes.all}
    point = sizes.at(numbers)
    inputs = random_inputs(model, sizes=point)
    for number in graph.inputs:
        name, (kind,) = graph.nodes[number].attribute("name"), graph.nodes[number].types
        assert inputs[name].shape == tuple(map(point.value, kind.shape))
    for size in sizes.all:
        for name, axis in size.places:
            assert inputs[name].shape[axis] == numbers[size.name]
    assert sizes.of_arrays(inputs) == point


def test_models_with_other_numbers_do_not_go_together():
    first, second = (Sizes(symbols=(("n", size), (name, 1))) for name, size in (("a", 2), ("b", 3)))
    assert dict(together([first, Sizes(symbols=(("b", 1),))]).symbols) == {"n": 2, "a": 1, "b": 1}
    with pytest.raises(UserError, match="found 3 and 2"):
        together([first, second])


def test_unusual_sizes():
    """0 and 1, each alone and all together; and each place of a name alone, beside the others."""
    sizes = open_sizes(x=["n", "m"], z=["n"])
    edges = [dict(edge.shapes) for edge in sizes.edges(sizes.at({"n": 4, "m": 5}))]
    assert edges[:6] == [
        {"x": (1, 5), "z": (1,)},
        {"x": (4, 1), "z": (4,)},
        {"x": (1, 1), "z": (1,)},
        {"x": (0, 5), "z": (0,)},
        {"x": (4, 0), "z": (4,)},
        {"x": (0, 0), "z": (0,)},
    ]
    varied = [(shapes["x"], shapes["z"]) for shapes in edges[6:]]
    assert varied == [((1, 5), (4,)), ((6, 5), (4,)), ((4, 5), (1,)), ((4, 5), (6,))]


PLAIN = backend("onnxruntime-disable")
# The elements of x that are not 0, each many times: [k] -> [k, 1000]; then a Relu.
ENLARGED = parsed(
    """g (float[n] x) => (float[k,1000] y) <int64[1] one = {1}, int64[2] times = {1, 1000}>
    { mask = Cast <to = 9> (x) nonzero = Compress <axis = 0> (x, mask)
      column = Unsqueeze(nonzero, one) tiled = Tile(column, times) y = Relu(tiled) }"""
)


def test_costs_know_the_sizes_that_a_run_shows():
    graph = onnx_io.read(ENLARGED)
    plain = OpenSizes(graph).at({"n": 50})
    x = np.zeros(50, np.float32)
    x[:30] = 1
    sizes = with_inner_sizes(graph, plain, {"x": x}, PLAIN)
    assert (sizes.named, sizes.shapes) == (plain.named, plain.shapes)
    (relu,) = (number for number, node in graph.nodes.items() if node.op == "Relu")
    (kind,) = graph.nodes[relu].types
    assert list(map(sizes.value, kind.shape)) == [30, 1000]
    # It reads and writes 30 · 1000 numbers of 4 bytes, at 15 million bytes a ms.
    cost_ms = AnalyticObjective(sizes=sizes).node_cost_ms(graph, relu)
    assert cost_ms == pytest.approx(0.002 + 240000 / 1.5e7)


def test_sizes_stay_where_all_are_known_or_the_model_does_not_run():
    for model, inputs in (
        (of_x("{ y = Relu(x) }"), {}),
        (ENLARGED, {"x": np.zeros((3, 1), np.float32)}),
    ):
        graph = onnx_io.read(model)
        sizes = OpenSizes(graph).at({"n": 3})
        assert with_inner_sizes(graph, sizes, inputs, PLAIN) is sizes
