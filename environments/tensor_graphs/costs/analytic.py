"""What a graph costs, worked out and not measured: operations, bytes, kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import CONSTANT, INPUT, Attributes, Node, TensorType
from environments.tensor_graphs.operators.table import OPERATORS, bytes_moved, flops

# These only say that a tensor has another shape.
VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


@dataclasses.dataclass(frozen=True)
class Figures:
    """The work of a graph or a node. Sizes that are known only when the model runs count as 1.

    Attributes:
      flops: floating-point operations.
      bytes_moved: that are read and written if every operator touches all of its tensors once.
      num_kernels: operators that are started.
    """

    flops: int
    bytes_moved: int
    num_kernels: int


@dataclasses.dataclass(frozen=True)
class AnalyticObjective:
    """Roofline: an operator takes as long as its operations or its bytes, and a little to start.

    The defaults are those of one core of a server of these years: the same on every machine, so
    that what they lead to can be compared.

    Attributes:
      flops_per_ms: floating-point operations.
      bytes_per_ms: read or written.
      start_ms: of each operator.
      name: "analytic".
    """

    flops_per_ms: float = 1e8
    bytes_per_ms: float = 1.5e7
    start_ms: float = 0.002
    name: str = "analytic"

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        """The cost of one node; of an Input, of constants and of what hangs on them alone, 0."""
        node = graph.nodes[number]
        if node.op in (INPUT, CONSTANT) or graph.is_constant(number):
            return 0.0
        if node.op in VIEWS:
            return self.start_ms
        return self.work_ms(node_figures(graph, node))

    def work_ms(self, work: Figures) -> float:
        """How long so much takes, started as so many kernels."""
        busy_ms = max(work.flops / self.flops_per_ms, work.bytes_moved / self.bytes_per_ms)
        return work.num_kernels * self.start_ms + busy_ms


def node_figures(graph: Graph, node: Node) -> Figures:
    """The work of a node that runs."""
    return work(node.op, input_types(graph, node), node.types, node.attributes)


def input_types(graph: Graph, node: Node) -> list[TensorType | None]:
    """Of a node's inputs, None where one is left out or its type is unknown."""
    return [None if ref is None else graph.type_of(ref) for ref in node.inputs]


def work(
    op: str,
    inputs: Sequence[TensorType | None],
    outputs: Sequence[TensorType | None],
    attributes: Attributes,
) -> Figures:
    """The work of an operator that runs."""
    if op in VIEWS:
        count = 0
    elif op in ("Gather", "Slice"):
        # Of what they choose from they read what they choose.
        count = 2 * bytes_moved([], outputs)
    else:
        count = bytes_moved(inputs, outputs)
    return Figures(flops(op, inputs, outputs, attributes) if op in OPERATORS else 0, count, 1)


def figures(graph: Graph) -> Figures:
    """The work of a graph, each operator by itself."""
    found = [
        node_figures(graph, node)
        for number, node in graph.nodes.items()
        if node.op not in (INPUT, CONSTANT) and not graph.is_constant(number)
    ]
    return Figures(
        sum(one.flops for one in found), sum(one.bytes_moved for one in found), len(found)
    )
