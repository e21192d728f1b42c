"""Graphs as observations: arrays of one size, whatever the graph.

The keys are graph_nets' own field names, and one observation *is* a `GraphsTuple` of two graphs,
the graph and its padding::

    graphs.GraphsTuple(**{name: observation[name] for name in FIELDS})

  nodes      float32 [max_nodes + 1, F]  features of the nodes; the first is the node's kind
  edges      float32 [max_edges, G]      features of the edges
  senders    int32 [max_edges]           row of the node that an edge begins at
  receivers  int32 [max_edges]           row of the node that an edge ends at
  globals    float32 [2, H]              features of the graph, and zeros
  n_node     int32 [2]                   nodes of the graph (N), and of the padding
  n_edge     int32 [2]                   edges of the graph (E), and of the padding

Padding. Rows 0 … N - 1 are the graph's nodes, all others are padding: zeros, so of kind 0, which no
node has. Row `max_nodes` is always padding, so there is a row for whatever points nowhere. Edges 0
… E - 1 are the graph's, all others join row `max_nodes` with itself, and are zeros. No edge joins
the graph with its padding, and they are two graphs: no message of a graph network gets from the one
to the other, and neither does a sum over a graph's nodes or edges, as long as both are summed per
graph (`n_node`, `n_edge`). Whatever a network computes of nodes 0 … N - 1, edges 0 … E - 1 and row
0 of the globals therefore does not depend on what the padding is, nor on how much there is of it.

Batches. In a batch all arrays have a leading axis [B], and rows are counted within each graph.
graph_nets has no such axis; there, rows are counted through: `joined` makes of B observations one
`GraphsTuple` of 2 B graphs, graph, padding, graph, padding …
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

FIELDS = ("nodes", "edges", "receivers", "senders", "globals", "n_node", "n_edge")

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class GraphSpace:
    """What is to be said of graphs, and how large they can be.

    Attributes:
      max_nodes: the most nodes.
      max_edges: the most edges.
      kinds: of nodes; the first one is that of padding.
      node_features: their names; the first one is "kind", a whole number, an index into `kinds`.
      edge_features: their names.
      global_features: their names.
    """

    max_nodes: int
    max_edges: int
    kinds: tuple[str, ...]
    node_features: tuple[str, ...]
    edge_features: tuple[str, ...]
    global_features: tuple[str, ...]

    @property
    def padding_node(self) -> int:
        """The row that is always padding."""
        return self.max_nodes

    def empty(self) -> Arrays:
        """The observation of a graph without nodes: padding alone."""
        return {
            "nodes": np.zeros((self.max_nodes + 1, len(self.node_features)), np.float32),
            "edges": np.zeros((self.max_edges, len(self.edge_features)), np.float32),
            "senders": np.full(self.max_edges, self.padding_node, np.int32),
            "receivers": np.full(self.max_edges, self.padding_node, np.int32),
            "globals": np.zeros((2, len(self.global_features)), np.float32),
            "n_node": np.array((0, self.max_nodes + 1), np.int32),
            "n_edge": np.array((0, self.max_edges), np.int32),
        }

    def pad(
        self,
        nodes: np.ndarray,
        edges: np.ndarray,
        senders: np.ndarray,
        receivers: np.ndarray,
        features: Sequence[float],
    ) -> Arrays:
        """The observation of a graph.

        Args:
          nodes: float [N, F], N at most `max_nodes`.
          edges: float [E, G], E at most `max_edges`.
          senders: int [E], rows of `nodes`.
          receivers: int [E], rows of `nodes`.
          features: H of the graph.
        """
        num_nodes, num_edges = len(nodes), len(edges)
        made = self.empty()
        made["nodes"][:num_nodes] = nodes
        made["edges"][:num_edges] = edges
        made["senders"][:num_edges] = senders
        made["receivers"][:num_edges] = receivers
        made["globals"][0] = features
        made["n_node"][:] = num_nodes, self.max_nodes + 1 - num_nodes
        made["n_edge"][:] = num_edges, self.max_edges - num_edges
        return made

    def specs(self) -> dict[str, Any]:
        """TF-Agents' ArraySpec of each array of one observation."""
        # Only here, so that whoever observes graphs without TF-Agents need not have TensorFlow.
        from tf_agents.specs import array_spec

        most = {
            "senders": self.max_nodes,
            "receivers": self.max_nodes,
            "n_node": self.max_nodes + 1,
            "n_edge": self.max_edges,
        }
        return {
            name: array_spec.BoundedArraySpec(array.shape, array.dtype, 0, most[name], name)
            if name in most
            else array_spec.ArraySpec(array.shape, array.dtype, name)
            for name, array in self.empty().items()
        }


def joined(observations: Sequence[Mapping[str, np.ndarray]]) -> Arrays:
    """The fields of one `GraphsTuple` of several observations, rows counted through.

    Args:
      observations: B of one GraphSpace.

    Returns:
      FIELDS: nodes [B (max_nodes + 1), F], edges [B max_edges, G], globals [2 B, H], and so on.
    """
    made = {
        name: np.concatenate([np.asarray(one[name]) for one in observations]) for name in FIELDS
    }
    num_rows, num_edges = len(observations[0]["nodes"]), len(observations[0]["edges"])
    first_rows = np.repeat(np.arange(len(observations), dtype=np.int32) * num_rows, num_edges)
    for name in ("senders", "receivers"):
        made[name] = made[name] + first_rows
    return made
