"""Keep the features of a graph's nodes and edges up to date as the graph changes.

A constant expression is shown as one node, without the nodes that it is computed from, since no
rule replaces them and they cost nothing when the model runs. A constant that only other constants
use is not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import Change, Node
from environments.tensor_graphs.observation import features
from environments.tensor_graphs.observation.row_table import RowTable

# Larger than the number of inputs of any node; used to number the edges.
_MOST_INPUTS = 1 << 12

COST, FLOPS, BYTES, KERNELS = range(4)
"""Columns of `nodes.work`: ms, operations, bytes moved, kernels."""


class Tracker:
    """Tables of a graph's nodes and edges, which follow the graph from step to step.

    Attributes:
      graph: the current graph.
      nodes: a row per node, by its number. `values` are the features, with 0 for COST_FEATURES;
        `work` has the columns COST, FLOPS, BYTES and KERNELS.
      edges: a row per edge, by its receiver and input. `values` are the features; `ends` are the
        numbers of the sender and the receiver.
      end: a number that is larger than those of all nodes so far.
    """

    def __init__(self, graph: Graph, costs_ms: Mapping[int, float], constants: bool = True) -> None:
        """Fill the tables from the whole graph.

        Nodes without a cost cost 0. `constants` says whether constants are shown as nodes at all.
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
        """Return an independent copy."""
        tracker = Tracker.__new__(Tracker)
        tracker.graph, tracker.end = self.graph, self.end
        tracker._shows_constants = self._shows_constants
        tracker.nodes, tracker.edges = self.nodes.copy(), self.edges.copy()
        tracker._num_edges, tracker._outputs = dict(self._num_edges), self._outputs
        return tracker

    def advance(self, graph: Graph, change: Change, costs_ms: Mapping[int, float]) -> None:
        """Update the tables to a graph that was made from the current one.

        `costs_ms` are those that may have changed.
        """
        old_nodes, self.graph = self.graph.nodes, graph
        nodes, removed = graph.nodes, change.removed
        self.end = max(self.end, max(change.added, default=-1) + 1)
        changed = {*change.added, *change.rewired}
        for number in (*change.added, *change.rewired):
            # The features of an edge say whether its sender is constant.
            if graph.is_constant(number):
                changed.update(graph.users(number))
        seen = set(changed)
        for number in changed:
            seen.update(nodes[number].used)
            if number in old_nodes:
                seen.update(old_nodes[number].used)
        for number in removed:
            seen.update(old_nodes[number].used)
        outputs = {ref.node for ref in graph.outputs}
        seen |= self._outputs ^ outputs
        self._outputs = outputs
        for number in removed:
            self._forget(number)
        self._see([number for number in seen if number in nodes], changed, costs_ms)

    def _see(
        self, seen: Iterable[int], changed: Iterable[int], costs_ms: Mapping[int, float]
    ) -> None:
        """Update the rows of some nodes, and the edges that end at those that changed.

        `changed` are those whose incoming edges may have changed.
        """
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
        """Update the edges that end at a node; a constant node has none."""
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
        """Whether a constant is shown: the model returns it, or a node that runs uses it."""
        graph = self.graph
        return self._shows_constants and (
            number in self._outputs
            or not all(graph.is_constant(user) for user in graph.users(number))
        )

    def total(self) -> np.ndarray:
        """Return the sum of `nodes.work` over all nodes: float64 [4]."""
        return self.nodes.work[self.nodes.order()].sum(axis=0)
