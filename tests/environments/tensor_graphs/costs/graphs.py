"""Graphs whose costs are known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from onnx import numpy_helper

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.rewriting.engine import Objective
from tests.environments.tensor_graphs.execution.models import parsed

X = (1, 8, 16)
_WORK = ((1.0, math.inf, 0.0), (math.inf, 1.0, 0.0), (math.inf, math.inf, 1.0))


def graph_of(
    nodes: str, x: Sequence[int | str] = X, rank: int | None = None, **weights: np.ndarray
) -> Graph:
    """A graph of x, weights, and nodes as a text; y is returned, of the rank of x or `rank`."""
    inner, outer = (",".join(map(str, shape)) for shape in (x, "abcd"[: rank or len(x)]))
    model = parsed(f"g (float[{inner}] x) => (float[{outer}] y) {{ {nodes} }}")
    arrays = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    model.graph.initializer.extend(arrays)
    return onnx_io.read(model)


def layer_norm(shape: Sequence[int | str]) -> Graph:
    """x + x through a sigmoid, normalised."""
    ones = np.ones(int(shape[-1]), np.float32)
    return graph_of("t = Sigmoid(x) s = Add(x, t) y = LayerNormalization(s, w, w)", shape, w=ones)


def graph_cost(objective: Objective, graph: Graph) -> float:
    """The cost of a graph in ms."""
    return sum(objective.node_cost_ms(graph, number) for number in graph.order())


def work_of(graph: Graph) -> list[float]:
    """The operations, bytes and kernels of a graph: its costs where only one of them costs."""
    return [graph_cost(AnalyticObjective(*speeds), graph) for speeds in _WORK]
