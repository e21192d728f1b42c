"""What is known of a graph's nodes and edges, kept up to date as the graph changes.

A constant expression is one node, whatever it is computed from: rules leave that alone, and it
costs nothing when the model runs. Constants that nobody who runs uses are not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import Change, Node
from environments.tensor_graphs.observation import features
from environments.tensor_graphs.observation.row_table import RowTable

# A node has fewer inputs.
_MOST_INPUTS = 1 << 12

COST, FLOPS, BYTES, KERNELS = range(4)
"""Columns of `nodes.work`: ms, operations, bytes moved, kernels."""


class Tracker:
    """Rows of nodes and edges of one graph after another.

    Attributes:
      graph: the last one.
      nodes: by number; `values` are the features without those of costs.
      edges: by receiver and input; `ends` are the numbers of sender and receiver.
      end: all numbers of nodes are smaller.
    """

    def __init__(self, graph: Graph, costs_ms: Mapping[int, float], constants: bool = True) -> None:
        """Looks at the whole graph.

        Args:
          graph: the first one.
          costs_ms: of nodes; 0 of others.
          constants: whether constants are nodes at all.
        """
        self.graph = graph
        self.nodes = RowTable(len(features.NODE_FEATURES), 2 * len(graph.nodes) + 16)
        self.edges = RowTable(len(features.EDGE_FEATURES), 2 * len(graph.nodes) + 16)
        self._shows_constants = constants
        self._num_edges: dict[int, int] = {}
        self._outputs = {ref.node for ref in graph.outputs}
        self.end = max(graph.nodes, default=-1) + 1
        self._see(graph.nodes, graph.nodes, costs_ms)

    def copy(self) -> Tracker:
        """Another tracker that knows the same."""
        other = Tracker.__new__(Tracker)
        other.graph, other.end = self.graph, self.end
        other._shows_constants = self._shows_constants
        other.nodes, other.edges = self.nodes.copy(), self.edges.copy()
        other._num_edges, other._outputs = dict(self._num_edges), self._outputs
        return other

    def advance(self, graph: Graph, change: Change, costs_ms: Mapping[int, float]) -> None:
        """Goes on to a graph that was made of the last one.

        Args:
          graph: the next one.
          change: from the last one to this one.
          costs_ms: of nodes whose costs may have changed.
        """
        known, self.graph = self.graph.nodes, graph
        nodes, removed = graph.nodes, change.removed
        self.end = max(self.end, max(change.added, default=-1) + 1)
        changed = {*change.added, *change.rewired}
        for number in (*change.added, *change.rewired):
            # An edge says whether its sender is constant.
            if graph.is_constant(number):
                changed.update(graph.users(number))
        seen = set(changed)
        for number in changed:
            seen.update(nodes[number].used)
            if number in known:
                seen.update(known[number].used)
        for number in removed:
            seen.update(known[number].used)
        outputs = {ref.node for ref in graph.outputs}
        seen |= self._outputs ^ outputs
        self._outputs = outputs
        for number in removed:
            self._forget(number)
        self._see([number for number in seen if number in nodes], changed, costs_ms)

    def _see(
        self, seen: Iterable[int], changed: Iterable[int], costs_ms: Mapping[int, float]
    ) -> None:
        """Brings nodes up to date; of changed ones also the edges that end there."""
        graph = self.graph
        for number in seen:
            node, is_constant = graph.nodes[number], graph.is_constant(number)
            if is_constant and not self._is_shown(number):
                self._forget(number)
                continue
            place = self.nodes.put(number)
            row, work = features.node_row(graph, node, is_constant)
            values = self.nodes.values[place]
            values[:] = row
            values[features.FIRST_CHANGING : features.FIRST_COST] = features.changing(
                graph, number, number in self._outputs
            )
            self.nodes.work[place, FLOPS:] = work
            if is_constant:
                self.nodes.work[place, COST] = 0
        for number, cost_ms in costs_ms.items():
            if number in self.nodes:
                self.nodes.work[self.nodes[number], COST] = cost_ms
        for number in changed:
            self._join(number, graph.nodes[number])

    def _join(self, number: int, node: Node) -> None:
        """Brings the edges that end at a node up to date."""
        graph, edges = self.graph, self.edges
        self._cut(number)
        if graph.is_constant(number):
            return
        for position, ref in enumerate(node.inputs):
            if ref is None or ref.node not in self.nodes:
                continue
            place = edges.put(number * _MOST_INPUTS + position)
            is_constant = graph.is_constant(ref.node)
            kind = graph.type_of(ref)
            edges.values[place] = features.edge_row(position, ref.output, kind, is_constant)
            edges.ends[place] = ref.node, number
        self._num_edges[number] = len(node.inputs)

    def _cut(self, number: int) -> None:
        for position in range(self._num_edges.pop(number, 0)):
            self.edges.drop(number * _MOST_INPUTS + position)

    def _forget(self, number: int) -> None:
        self._cut(number)
        if number in self.nodes:
            self.nodes.work[self.nodes[number]] = 0
            self.nodes.drop(number)

    def _is_shown(self, number: int) -> bool:
        """Whether a constant is a node: something that is not constant uses it."""
        graph = self.graph
        return self._shows_constants and (
            number in self._outputs
            or not all(graph.is_constant(user) for user in graph.users(number))
        )

    def total(self) -> np.ndarray:
        """Sums over the nodes: float64 [4], as `nodes.work` has them."""
        return self.nodes.work[self.nodes.order()].sum(axis=0)
