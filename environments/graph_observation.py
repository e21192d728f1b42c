"""Graph observations: arrays whose size does not depend on the graph.

The keys are graph_nets' field names. One observation *is* a `GraphsTuple` of two graphs, the graph
and its padding::

    graphs.GraphsTuple(**{name: observation[name] for name in FIELDS})

  nodes      float32 [max_nodes + 1, F]  features of the nodes; the first is the node's kind
  edges      float32 [max_edges, G]      features of the edges
  senders    int32 [max_edges]           row of the node that an edge begins at
  receivers  int32 [max_edges]           row of the node that an edge ends at
  globals    float32 [2, H]              features of the graph, and zeros
  n_node     int32 [2]                   nodes of the graph (N), and of the padding
  n_edge     int32 [2]                   edges of the graph (E), and of the padding

Padding. Rows 0 … N - 1 are the graph's nodes. All other rows are padding: zeros, so their kind is
0, which no node has. Row `max_nodes` is always padding, so an index that means "nothing" can point
to it. Edges 0 … E - 1 are the graph's. All other edges are zeros and join row `max_nodes` with
itself. No edge joins the graph with its padding, so no message of a graph network passes between
them. Sums over nodes or edges stay apart too, if they are taken per graph (`n_node`, `n_edge`).
Therefore what a network computes from nodes 0 … N - 1, edges 0 … E - 1 and row 0 of the globals
depends neither on the content nor on the amount of padding.

Batches. In a batch all arrays have a leading axis [B], and row numbers start at 0 in each graph.
graph_nets has no such axis and numbers the rows of all graphs consecutively.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

FIELDS = ("nodes", "edges", "receivers", "senders", "globals", "n_node", "n_edge")

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class GraphSpace:
    """The features of observed graphs, and the largest graph that fits.

    Attributes:
      max_nodes: largest number of nodes.
      max_edges: largest number of edges.
      kinds: names of the kinds of nodes; the first is the kind of padding.
      node_features: names of the F node features; the first is "kind", an index into `kinds`.
      edge_features: names of the G edge features.
      global_features: names of the H features of the whole graph.
    """

    max_nodes: int
    max_edges: int
    kinds: tuple[str, ...]
    node_features: tuple[str, ...]
    edge_features: tuple[str, ...]
    global_features: tuple[str, ...]

    @property
    def padding_node(self) -> int:
        """Return the number of the row that is always padding."""
        return self.max_nodes

    def empty(self) -> Arrays:
        """Return the observation of a graph without nodes: padding alone."""
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
        """Return the observation of a graph.

        Args:
          nodes: float [N, F]; N is at most `max_nodes`.
          edges: float [E, G]; E is at most `max_edges`.
          senders: int [E], the row of `nodes` that each edge begins at.
          receivers: int [E], the row where it ends.
          features: float [H], features of the whole graph.
        """
        num_nodes, num_edges = len(nodes), len(edges)
        arrays = self.empty()
        arrays["nodes"][:num_nodes] = nodes
        arrays["edges"][:num_edges] = edges
        arrays["senders"][:num_edges] = senders
        arrays["receivers"][:num_edges] = receivers
        arrays["globals"][0] = features
        arrays["n_node"][:] = num_nodes, self.max_nodes + 1 - num_nodes
        arrays["n_edge"][:] = num_edges, self.max_edges - num_edges
        return arrays

    def specs(self) -> dict[str, Any]:
        """Return TF-Agents' ArraySpec of each array of one observation."""
        # Imported here, so that graphs can be observed without TensorFlow.
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
