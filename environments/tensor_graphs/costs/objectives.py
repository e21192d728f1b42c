"""What is to become less: `make_objective("onnxruntime")`.

onnxruntime, onnxruntime-{disable,basic,extended}, onnxruntime-cuda, openvino
           time of each operator, measured on this machine and remembered; see `cost`
analytic   worked out from operations and bytes; the same on every machine
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Protocol

from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.costs.measured import MeasuredObjective
from environments.tensor_graphs.costs.table import table_of
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.graph.graph import Graph


class Objective(Protocol):
    """Gives each node of a graph a cost; that of the graph is the sum.

    It may have a method `affected(before, after, change)` as well: nodes of the graph `after` whose
    cost the edit may have changed, new ones included. Without it these are the nodes that are new
    or rewired, and those that use one that has become constant.
    """

    @property
    def name(self) -> str:
        """What `make_objective` knows it by."""
        ...

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        """The cost of a node; 0 of Inputs and of what depends on constants alone."""
        ...


def make_objective(
    name: str = "onnxruntime",
    sizes: Mapping[str, int] | None = None,
    *,
    directory: pathlib.Path | None = None,
    fused: bool = True,
) -> Objective:
    """The objective of that name.

    Args:
      name: see the module.
      sizes: of dimensions that models leave open, by name; 1 for others.
      directory: where measured costs are kept; that of the user's caches if not given.
      fused: whether operators that the backend may fuse are measured together.

    Raises:
      UserError: there is none of that name, or what it needs is not installed.
    """
    if name == "analytic":
        return AnalyticObjective()
    runs = backend(name)
    return MeasuredObjective(runs, table_of(runs, directory), sizes, fused)


def graph_cost(objective: Objective, graph: Graph) -> float:
    """The cost of a graph in ms."""
    return sum(objective.node_cost_ms(graph, number) for number in graph.order())
