"""Graphs whose costs are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.costs.objectives import Objective
from environments.tensor_graphs.graph.graph import Graph

X = ("x", TensorProto.FLOAT, [1, 8, 16])


def graph_of(
    *nodes: onnx.NodeProto, x: tuple = X, rank: int | None = None, **weights: Any
) -> Graph:
    """A graph of x and weights; the last node's output is returned, of the rank of x or `rank`."""
    name, shape = nodes[-1].output[0], [None] * (len(x[2]) if rank is None else rank)
    output = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    initialisers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    inputs = [helper.make_tensor_value_info(*x)]
    graph = helper.make_graph(nodes, "g", inputs, [output], initialisers)
    opsets = [helper.make_opsetid("", 17)]
    return onnx_io.read(helper.make_model(graph, ir_version=8, opset_imports=opsets))


def layer_norm(shape: list[int | str]) -> Graph:
    """x + x through a sigmoid, normalised."""
    ones = np.ones(int(shape[-1]), np.float32)
    return graph_of(
        helper.make_node("Sigmoid", ["x"], ["t"]),
        helper.make_node("Add", ["x", "t"], ["s"]),
        helper.make_node("LayerNormalization", ["s", "w", "w"], ["y"]),
        x=("x", TensorProto.FLOAT, shape),
        w=ones,
    )


def graph_cost(objective: Objective, graph: Graph) -> float:
    """The cost of a graph in ms."""
    return sum(objective.node_cost_ms(graph, number) for number in graph.order())
