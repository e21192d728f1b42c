"""Objectives: the cost that rewriting is to reduce. `make_objective("onnxruntime")` makes one.

onnxruntime, onnxruntime-{disable,basic,extended}, onnxruntime-cuda, openvino
           the time of each operator, measured on this machine and kept on disk; see `measured`
analytic   worked out from operations and bytes; the same on every machine; see `analytic`
"""

from __future__ import annotations

from typing import Protocol

from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.costs.measured import MeasuredObjective
from environments.tensor_graphs.costs.table import table_of
from environments.tensor_graphs.execution import backends
from environments.tensor_graphs.execution.isolation import remote
from environments.tensor_graphs.execution.sizes import NONE_OPEN, Sizes
from environments.tensor_graphs.graph.graph import Graph

NAMES = ("analytic", *backends.NAMES)
"""The names of all objectives; what some of them need may not be installed."""


class Objective(Protocol):
    """Gives each node of a graph a cost; the cost of the graph is their sum.

    An objective may also have a method `affected(before, after, change)`. It returns the nodes of
    the graph `after` that the edit added, or whose cost it may have changed. Without this method,
    these are the new nodes, the rewired nodes, and the users of nodes that have become constant.
    And it may have `sizes`, at which it takes those that the model leaves open.
    """

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        """Return the cost of a node in ms; 0 for an Input, or if it depends on constants alone."""


def make_objective(
    name: str = "onnxruntime", sizes: Sizes = NONE_OPEN, threads: int = 1
) -> Objective:
    """Make the objective of one of NAMES, at the sizes that models leave open.

    What is measured runs on so many threads.

    Raises:
      UserError: no objective has this name, or the library that it needs is not installed.
    """
    if name == "analytic":
        return AnalyticObjective(sizes=sizes)
    runs = remote.isolated(name, threads)
    return MeasuredObjective(runs, table_of(runs), sizes)
