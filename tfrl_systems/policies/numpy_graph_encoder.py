"""The graph encoder in NumPy.

The arithmetic is that of `networks/graph_encoder.py`, in float32; the results agree up to rounding.
Sums over edges are products with sparse matrices of ones.

This module does not import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from tfrl_systems.policies.numpy_network import within

Arrays = Mapping[str, np.ndarray]

ENCODER = "encoder/"
_ZERO, _ONE = (np.array(value, np.float32) for value in (0, 1))


class NumpyGraphEncoder:
    """The encoder, for one graph at a time.

    Args:
      description: its width, rounds, block, features and norm_epsilon.
      arrays: its variables by their place within it, such as "round0/send/w".
    """

    def __init__(self, description: Mapping[str, Any], arrays: Arrays) -> None:
        width, num_rounds = int(description["width"]), int(description["rounds"])
        self._num_kinds = int(description["features"]["num_kinds"])
        # Policies that were saved before there was a choice have no block.
        self._rounds_type = _ROUNDS[description.get("block", "two_way")]
        self._epsilon = np.float32(description["norm_epsilon"])
        self._arrays = arrays
        shape = (self._num_kinds, width)
        if arrays["kinds"].shape != shape:
            raise ValueError(f"kinds of the shape {arrays['kinds'].shape}, not {shape}")
        rounds = [within(f"round{number}/", arrays) for number in range(num_rounds)]
        self._rounds = self._rounds_type(arrays, rounds, self._epsilon)

    @property
    def is_local(self) -> bool:
        """Whether nodes hear nothing of the graph as a whole."""
        return self._rounds_type is _TwoWayRounds and "round0/hear/w" not in self._arrays

    def __call__(self, graph: Arrays) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of the nodes [N, H] and of the graph [1, H] of one observation."""
        arrays = self._arrays
        num_nodes, num_edges = int(graph["n_node"][0]), int(graph["n_edge"][0])
        nodes = graph["nodes"][:num_nodes]
        kinds = nodes[:, 0].astype(np.intp)
        kinds[(kinds < 0) | (kinds >= self._num_kinds)] = 0
        h = np.dot(nodes[:, 1:], arrays["nodes/w"])
        h += arrays["nodes/b"]
        h += arrays["kinds"][kinds]
        _norm(h, arrays["nodes_norm/scale"], arrays["nodes_norm/offset"], self._epsilon)
        g = graph["globals"][:1] @ arrays["globals/w"] + arrays["globals/b"]
        _norm(g, arrays["globals_norm/scale"], arrays["globals_norm/offset"], self._epsilon)
        edges = [graph[name][:num_edges] for name in ("edges", "senders", "receivers")]
        return self._rounds(h, g, *edges)

    def latent(self, graph: Arrays) -> np.ndarray:
        """Return the latent [1, H] of one observation, as `GraphLatents` does."""
        _, g = self(graph)
        _norm(g, _ONE, _ZERO, self._epsilon)
        return g


class _TwoWayRounds:
    """All rounds, if they are like `networks.graph_encoder.Round`.

    Args:
      arrays: the variables of the encoder.
      rounds: those of each round, by their place within it.
      epsilon: the norms' epsilon.
    """

    def __init__(self, arrays: Arrays, rounds: Sequence[Arrays], epsilon: np.float32) -> None:
        self._rounds = [_Round(own, epsilon) for own in rounds]
        # The edge matrices of all rounds, forth and back, [2 K, F, H]: one product for all of them.
        self._edges = np.stack([edges for layer in self._rounds for edges in layer.edges])

    def __call__(
        self,
        h: np.ndarray,
        g: np.ndarray,
        edges: np.ndarray,
        senders: np.ndarray,
        receivers: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the vectors of nodes [N, H] and graph [1, H] after all rounds; may overwrite h, g.

        `edges` [E, F] are features.
        """
        ways = [
            (begins, _sums_at(ends, len(h)))
            for begins, ends in ((senders, receivers), (receivers, senders))
        ]
        shares = np.matmul(edges, self._edges)
        for number, layer in enumerate(self._rounds):
            layer(h, g, ways, shares[2 * number : 2 * number + 2])
        return h, g


class _FullRounds:
    """All rounds, if they are like `networks.graph_encoder.FullRound`; used as `_TwoWayRounds`."""

    def __init__(self, arrays: Arrays, rounds: Sequence[Arrays], epsilon: np.float32) -> None:
        self._arrays, self._rounds, self._epsilon = arrays, rounds, epsilon
        # The hidden layer's matrix by what it multiplies: one product for each node, not each edge.
        self._kernels = [
            {
                field: np.split(own[f"{field}/hidden/w"], num_inputs)
                for field, num_inputs in (("edges", 4), ("nodes", 3), ("globals", 3))
            }
            for own in rounds
        ]

    def __call__(
        self,
        h: np.ndarray,
        g: np.ndarray,
        edges: np.ndarray,
        senders: np.ndarray,
        receivers: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        arrays, sums = self._arrays, _sums_at(receivers, len(h))
        e = edges @ arrays["edges/w"] + arrays["edges/b"]
        _norm(e, _ONE, _ZERO, self._epsilon)
        for own, kernels in zip(self._rounds, self._kernels, strict=True):
            of_edge, of_receiver, of_sender, of_graph = kernels["edges"]
            hidden = np.dot(e, of_edge)
            hidden += np.dot(h, of_receiver).take(receivers, axis=0, mode="clip")
            hidden += np.dot(h, of_sender).take(senders, axis=0, mode="clip")
            e = self._updated(own, "edges", hidden, g @ of_graph)
            of_sum, of_node, of_graph = kernels["nodes"]
            hidden = np.dot(sums @ e, of_sum) + np.dot(h, of_node)
            h = self._updated(own, "nodes", hidden, g @ of_graph)
            of_edges, of_nodes, of_graph = kernels["globals"]
            totals = (values.sum(axis=0, keepdims=True) for values in (e, h))
            hidden = sum(map(np.dot, totals, (of_edges, of_nodes)))
            g = self._updated(own, "globals", hidden, g @ of_graph)
            # Within a block nothing is normed; see `FullRound`.
            for values in (e, h, g):
                _norm(values, _ONE, _ZERO, self._epsilon)
        return h, g

    def _updated(
        self, own: Arrays, field: str, hidden: np.ndarray, of_graph: np.ndarray
    ) -> np.ndarray:
        """Return φ, given its hidden layer's sums without the bias and the graph's share."""
        hidden += of_graph + own[f"{field}/hidden/b"]
        values: np.ndarray = np.dot(np.maximum(hidden, _ZERO, hidden), own[f"{field}/out/w"])
        values += own[f"{field}/out/b"]
        return values


_ROUNDS: Mapping[str, Any] = {"two_way": _TwoWayRounds, "full": _FullRounds}


class _Round:
    """One round of message passing, like `networks.graph_encoder.Round`.

    Attributes:
      edges: the matrices E and F that edge features are multiplied with, forth and back, [F, H]
        each.
    """

    def __init__(self, arrays: Arrays, epsilon: np.float32) -> None:
        self.edges = arrays["edges_in/w"], arrays["edges_out/w"]
        self._arrays = arrays
        self._epsilon = epsilon
        # Three products with contiguous results are faster than one whose result is split.
        kernels = np.split(arrays["send/w"], 3, axis=1)
        self._send = list(
            zip(map(np.ascontiguousarray, kernels), np.split(arrays["send/b"], 3), strict=True)
        )
        self._combine = np.split(arrays["combine/w"], 3)

    def __call__(
        self,
        h: np.ndarray,
        g: np.ndarray,
        ways: Sequence[tuple[np.ndarray, scipy.sparse.csr_matrix]],
        shares: np.ndarray,
    ) -> None:
        """Update the vectors of the nodes and of the graph in place.

        Args:
          h: vectors of the nodes, [N, H].
          g: vector of the graph, [1, H].
          ways: forth and back: the node at which each edge begins, and the matrix that sums the
            messages of edges at the nodes where they end.
          shares: each edge's share of its message, forth and back, [2, E, H]; overwritten.
        """
        arrays = self._arrays
        (kernel, bias), *sending = reversed(self._send)
        own = np.dot(h, kernel)
        own += bias + (g @ arrays["hear/w"])[0] if "hear/w" in arrays else bias
        streams = [np.maximum(own, _ZERO, own)]
        for (kernel, bias), messages, (begins, sums) in zip(
            sending, shares[::-1], ways[::-1], strict=True
        ):
            sent = np.dot(h, kernel)
            sent += bias
            messages += sent.take(begins, axis=0, mode="clip")
            streams.append(sums @ np.maximum(messages, _ZERO, messages))
        for stream, kernel in zip(reversed(streams), self._combine, strict=True):
            h += np.dot(stream, kernel)
        h += arrays["combine/b"]
        _norm(h, arrays["norm/scale"], arrays["norm/offset"], self._epsilon)
        mean = h.sum(axis=0, keepdims=True) / np.float32(max(len(h), 1))
        hidden = np.concatenate((g, mean), axis=1) @ arrays["global_hidden/w"]
        hidden = np.maximum(hidden + arrays["global_hidden/b"], _ZERO)
        g += hidden @ arrays["global_out/w"] + arrays["global_out/b"]
        _norm(g, arrays["global_norm/scale"], arrays["global_norm/offset"], self._epsilon)


def split_batch(observation: Arrays) -> Iterator[Arrays]:
    """Yield the observations of a batch."""
    for number in range(len(observation["n_node"])):
        yield {name: field[number] for name, field in observation.items()}


def _norm(values: np.ndarray, scale: np.ndarray, offset: np.ndarray, epsilon: np.float32) -> None:
    """Apply layer normalisation to the rows of `values`, in place."""
    size = np.float32(values.shape[1])
    values -= (values @ np.full(values.shape[1], 1 / size, np.float32))[:, np.newaxis]
    variances = np.einsum("nh,nh->n", values, values) / size
    values *= (1 / np.sqrt(variances + epsilon))[:, np.newaxis]
    values *= scale
    values += offset


def _sums_at(rows: np.ndarray, num_rows: int) -> scipy.sparse.csr_matrix:
    """Return a matrix [num_rows, E] that sums the rows of an [E, H] that belong to each row."""
    order = np.argsort(rows, kind="stable").astype(np.int32)
    ends = np.zeros(num_rows + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=num_rows), out=ends[1:])
    ones = np.ones(len(rows), np.float32)
    return scipy.sparse.csr_matrix((ones, order, ends), (num_rows, len(rows)))
