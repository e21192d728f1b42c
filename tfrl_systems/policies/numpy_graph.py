"""A graph actor in NumPy, with which workers act if observations are graphs.

The arithmetic is that of `networks/graph_encoder.py` and `networks/graph_heads.py`, in float32; the
results agree up to rounding. Graphs are processed one at a time, so the decision for one does not
depend on the others in its batch. Sums over edges are products with sparse matrices of ones.

This module does not import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from tfrl_systems.policies.numpy_network import Memoryless

Arrays = Mapping[str, np.ndarray]

_ZERO, _ONE = (np.array(value, np.float32) for value in (0, 1))
ENCODER = "encoder/"
_HEAD = "head/"


class NumpyGraphEncoder:
    """The encoder, for one graph at a time.

    Args:
      description: its width, rounds, features and norm_epsilon.
      arrays: its variables by their place within it, such as "round0/send/w".

    Raises:
      KeyError: an array or a field of the description is missing.
      ValueError: the shape of an array does not fit the description.
    """

    def __init__(self, description: Mapping[str, Any], arrays: Arrays) -> None:
        self._width = int(description["width"])
        self._num_rounds = int(description["rounds"])
        self._num_kinds = int(description["features"]["num_kinds"])
        self._epsilon = np.float32(description["norm_epsilon"])
        self.update(arrays)

    def update(self, arrays: Arrays) -> None:
        """Replace all variables; `arrays` as in the constructor."""
        self._arrays = arrays
        shape = (self._num_kinds, self._width)
        if self._arrays["kinds"].shape != shape:
            raise ValueError(f"kinds of the shape {self._arrays['kinds'].shape}, not {shape}")
        self._rounds = [
            _Round(within(f"round{number}/", self._arrays), self._epsilon)
            for number in range(self._num_rounds)
        ]
        # The edge matrices of all rounds, forth and back, [2 K, F, H]: one product for all of them.
        self._edges = np.stack([edges for layer in self._rounds for edges in layer.edges])

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
        senders, receivers = graph["senders"][:num_edges], graph["receivers"][:num_edges]
        ways = [
            (begins, _sums_at(ends, num_nodes))
            for begins, ends in ((senders, receivers), (receivers, senders))
        ]
        shares = np.matmul(graph["edges"][:num_edges], self._edges)
        for number, layer in enumerate(self._rounds):
            layer(h, g, ways, shares[2 * number : 2 * number + 2])
        return h, g

    def latent(self, graph: Arrays) -> np.ndarray:
        """Return the latent [1, H] of one observation, as `networks.latents.GraphLatents` does."""
        _, g = self(graph)
        _norm(g, _ONE, _ZERO, self._epsilon)
        return g


class NumpyGraphNetwork(Memoryless):
    """The encoder and the head of a graph actor.

    Args:
      description: as `networks.graph_actors.GraphActorNetwork.describe` returns it.
      arrays: the network's variables, named as by its `named_variables`.

    Raises:
      KeyError: an array or a field of the description is missing.
      ValueError: the shape of an array does not fit the description.
    """

    def __init__(self, description: Mapping[str, Any], arrays: Arrays) -> None:
        self._masked = np.float32(description["masked"])
        self._encoder = NumpyGraphEncoder(description, within(ENCODER, arrays))
        self._head = _HEADS[description["head"]](description)
        self._head.update(within(_HEAD, arrays))

    def update(self, arrays: Arrays) -> None:
        """Replace all variables; `arrays` as in the constructor."""
        self._encoder.update(within(ENCODER, arrays))
        self._head.update(within(_HEAD, arrays))

    def parameters(self, observation: Arrays) -> dict[str, np.ndarray]:
        """Return the logits [B, A] of the listed actions, and the list [B, A, 2]."""
        is_there = observation["action_mask"]
        logits = np.full(is_there.shape, self._masked, np.float32)
        for number, allowed in enumerate(is_there):
            graph = {name: field[number] for name, field in observation.items()}
            (places,) = np.nonzero(allowed)
            logits[number, places] = self._head(*self._encoder(graph), graph, places)
        return {"logits": logits, "actions": observation["actions"]}


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


class _PointerHead:
    """A head like `networks.graph_heads.PointerHead` or `LocalHead`; it caches rules' vectors."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        self._hash_size = int(description["hash_size"])
        self._max_logit = np.float32(description["max_logit"])
        self._cache: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def update(self, arrays: Arrays) -> None:
        self._arrays, self._cache = arrays, None
        # Unlike `PointerHead`, this head takes the means first. They stand side by side, [M, 3 H]:
        # those of the root, of the touched nodes and of the inputs. One matrix multiplies them.
        self._nodes = np.concatenate(np.split(arrays["nodes/w"], 3, axis=1))

    def __call__(
        self, h: np.ndarray, g: np.ndarray, graph: Arrays, places: np.ndarray
    ) -> np.ndarray:
        arrays, num_nodes = self._arrays, len(h)
        touched, inputs = graph["action_nodes"][places], graph["action_inputs"][places]
        means = [_means_of(rows, num_nodes) @ h for rows in (touched[:, :1], touched, inputs)]
        hidden = np.dot(np.concatenate(means, axis=1), self._nodes)
        hidden += self._rules(graph["rule_ids"], graph["rule_targets"])[graph["actions"][places, 0]]
        hidden += np.dot(graph["action_features"][places], arrays["matches/w"])
        if "globals/w" in arrays:
            hidden += g @ arrays["globals/w"] + arrays["globals/b"]
        scores = np.dot(np.maximum(hidden, _ZERO, hidden), arrays["score/w"])[:, 0]
        most = self._max_logit
        return most * np.tanh(scores / most) if most else scores

    def _rules(self, ids: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the vectors of all rules and of NO-OP, [R + 1, H]."""
        # Another thread may replace the cache, so it is read once.
        cache = self._cache
        if cache and np.array_equal(cache[0], ids) and np.array_equal(cache[1], targets):
            return cache[2]
        arrays, size = self._arrays, self._hash_size
        # Operators that are newer than the policy count as none, as for nodes.
        familiar = np.where(targets < len(arrays["targets"]), targets, 0)
        built = arrays["targets"][familiar] * (familiar > 0)[..., np.newaxis]
        vectors = arrays["first_hash"][ids % size] + arrays["second_hash"][ids // size % size]
        vectors = (vectors + built.sum(axis=-2)).astype(np.float32)
        self._cache = ids.copy(), targets.copy(), vectors
        return vectors


class _HierarchicalHead:
    """A head like `networks.graph_heads.HierarchicalHead`."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        """Do nothing: this head has no settings."""

    def update(self, arrays: Arrays) -> None:
        self._arrays = arrays

    def __call__(
        self, h: np.ndarray, g: np.ndarray, graph: Arrays, places: np.ndarray
    ) -> np.ndarray:
        arrays = self._arrays
        xfers, locations = graph["actions"][places].T
        present, pairs = np.unique(xfers, return_inverse=True)
        hidden = np.maximum(g @ arrays["xfer_hidden/w"] + arrays["xfer_hidden/b"], _ZERO)
        logits = hidden @ arrays["xfers/w"] + arrays["xfers/b"]
        logs = _log_shares(logits[0, present], np.zeros(len(present), np.intp), 1)
        hidden = g @ arrays["location_hidden/w"] + arrays["location_hidden/b"]
        hidden = np.maximum(hidden + arrays["location_xfers"][xfers], _ZERO)
        scores = np.einsum("mh,mh->m", hidden, arrays["locations/w"].T[locations])
        scores += arrays["locations/b"][locations]
        return logs[pairs] + _log_shares(scores, pairs, len(present))


_HEADS: dict[str, Any] = {
    "pointer": _PointerHead,
    "local": _PointerHead,
    "hierarchical": _HierarchicalHead,
}


def within(place: str, arrays: Arrays) -> dict[str, np.ndarray]:
    """Copy the arrays whose names begin with `place`, and remove that from their names."""
    return {
        name.removeprefix(place): np.array(array)
        for name, array in arrays.items()
        if name.startswith(place)
    }


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


def _means_of(rows: np.ndarray, num_nodes: int) -> scipy.sparse.csr_matrix:
    """Return a matrix [M, N] that takes the mean of the nodes in each of `rows` [M, K].

    Numbers that are no node's do not count; the mean of no nodes is 0.
    """
    is_node = rows < num_nodes
    counts = is_node.sum(axis=1)
    ends = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    shares = np.repeat((1 / np.maximum(counts, 1)).astype(np.float32), counts)
    return scipy.sparse.csr_matrix((shares, rows[is_node], ends), (len(rows), num_nodes))


def _log_shares(scores: np.ndarray, segments: np.ndarray, num_segments: int) -> np.ndarray:
    """Return the logarithms of the softmax within each segment, float32 [M]."""
    most = np.full(num_segments, -np.inf, np.float32)
    np.maximum.at(most, segments, scores)
    scores = scores - most[segments]
    sums = np.bincount(segments, np.exp(scores), num_segments)
    return (scores - np.log(sums)[segments]).astype(np.float32)
