"""Work out the cost of a graph, without measuring, from its operations, bytes and kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from environments.tensor_graphs.execution.sizes import NONE_OPEN, Sizes
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import CONSTANT, INPUT, Attributes, Node, TensorType
from environments.tensor_graphs.operators.table import OPERATORS, bytes_moved, flops

# Operators that only give a tensor another shape, and need not touch its elements.
VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


@dataclasses.dataclass(frozen=True)
class Figures:
    """The work of an operator.

    `bytes_moved` are read and written if it touches each of its tensors once; it is one kernel.
    """

    flops: int
    bytes_moved: int
    num_kernels: int


@dataclasses.dataclass(frozen=True)
class AnalyticObjective:
    """A roofline model of the time that operators take.

    An operator takes a fixed time to start. Then it takes as long as its floating-point operations
    or its bytes, whichever take longer. The default speeds are those of one core of a current
    server. They are the same on every machine, so that results from different machines compare.
    """

    flops_per_ms: float = 1e8
    bytes_per_ms: float = 1.5e7
    start_ms: float = 0.002
    sizes: Sizes = NONE_OPEN

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        """Return the cost of a node in ms; 0 for an Input, or if it depends on constants alone."""
        node = graph.nodes[number]
        if node.op in (INPUT, CONSTANT) or graph.is_constant(number):
            return 0.0
        if node.op in VIEWS:
            return self.start_ms
        inputs = [at(kind, self.sizes) for kind in input_types(graph, node)]
        outputs = [at(kind, self.sizes) for kind in node.types]
        return self.work_ms(work(node.op, inputs, outputs, node.attributes))

    def work_ms(self, work: Figures) -> float:
        """Return the time in ms that some work takes."""
        busy_ms = max(work.flops / self.flops_per_ms, work.bytes_moved / self.bytes_per_ms)
        return work.num_kernels * self.start_ms + busy_ms


def at(kind: TensorType | None, sizes: Sizes) -> TensorType | None:
    """Return a type with numbers for its open sizes."""
    if kind is None or kind.shape is None or kind.is_static:
        return kind
    return TensorType(kind.dtype, tuple(max(0, sizes.value(size)) for size in kind.shape))


def input_types(graph: Graph, node: Node) -> list[TensorType | None]:
    """Return the types of a node's inputs; None for one that is left out or is no tensor."""
    return [None if ref is None else graph.type_of(ref) for ref in node.inputs]


def work(
    op: str,
    inputs: Sequence[TensorType | None],
    outputs: Sequence[TensorType | None],
    attributes: Attributes,
) -> Figures:
    """Return the work of an operator with attributes that are sorted by name.

    The types are None for an input that is left out, and for what is no tensor.
    """
    if op in VIEWS:
        count = 0
    elif op in ("Gather", "Slice"):
        # They read only the elements that they select, and write each of them once.
        count = 2 * bytes_moved([], outputs)
    else:
        count = bytes_moved(inputs, outputs)
    return Figures(flops(op, inputs, outputs, attributes) if op in OPERATORS else 0, count, 1)
