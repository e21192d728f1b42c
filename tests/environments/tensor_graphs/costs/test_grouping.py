"""Operators that may become one kernel form one group."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs.costs.grouping import Groups
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT
from tests.environments.tensor_graphs.costs.graphs import graph_of


def groups_of(graph: Graph) -> list[list[str]]:
    """Operators of each group, in the order of the graph."""
    groups = Groups(graph)
    leaders = [
        number
        for number in graph.order()
        if graph.nodes[number].op != INPUT
        and not graph.is_constant(number)
        and groups.leader(number) == number
    ]
    return [[graph.nodes[number].op for number in groups.members(leader)] for leader in leaders]


def test_groups() -> None:
    tiny = onnx_io.read(models.make("bert-tiny"))
    groups = groups_of(tiny)
    assert sum(map(len, groups)) == sum(
        node.op != INPUT and not tiny.is_constant(number) for number, node in tiny.nodes.items()
    )
    normalised = ["ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"]
    assert (
        sum(group[0] == "Add" and sorted(group[1:]) == sorted(normalised) for group in groups) == 5
    )
    assert ["MatMul", "Add", "Div", "Erf", "Add", "Mul", "Mul"] in groups
    assert ["Transpose", "Transpose", "MatMul", "Div"] in groups
    assert groups.count(["MatMul", "Add"]) == 10


def test_groups_of_convolutions() -> None:
    groups = groups_of(onnx_io.read(models.make("resnet-18")))
    assert groups[0] == ["Conv", "BatchNormalization", "Relu"]
    block = ["Conv", "BatchNormalization", "Conv", "BatchNormalization", "Add", "Relu"]
    assert groups.count(block) == 3
    assert all(len(group) <= 6 for group in groups)


@pytest.mark.parametrize(
    ("nodes", "shape", "expected"),
    [
        # Of matrices, one of two products becomes the other one's bias; of rank 3 neither does.
        ("m = MatMul(x, w) n = MatMul(x, v) y = Add(m, n)", [8, 16], [["MatMul", "MatMul", "Add"]]),
        ("m = MatMul(x, w) n = MatMul(x, v) y = Add(m, n)", [1, 8, 16],
         [["MatMul"], ["MatMul"], ["Add"]]),
        # What is used twice is computed.
        ("m = MatMul(x, w) y = Add(m, b)", [1, 8, 16], [["MatMul", "Add"]]),
        ("m = MatMul(x, w) s = Add(m, b) y = Mul(m, s)", [1, 8, 16], [["MatMul"], ["Add", "Mul"]]),
    ],
)  # fmt: skip
def test_groups_of_products(nodes, shape, expected) -> None:
    weights = {"w": np.ones((16, 16)), "v": np.zeros((16, 16)), "b": np.ones(16)}
    arrays = {name: array.astype(np.float32) for name, array in weights.items()}
    assert groups_of(graph_of(nodes, shape, **arrays)) == expected
