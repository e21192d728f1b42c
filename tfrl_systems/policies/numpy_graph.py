"""A graph actor in NumPy, with which workers act if observations are graphs.

The arithmetic is that of `networks/graph_heads.py`, in float32; the results agree up to rounding.
The decision for one graph does not depend on the others in its batch. A "local" network computes
each neighbourhood once (`numpy_neighbourhoods`); the others process graphs one at a time, and anew
at each decision, since the vector of each node depends on the whole graph.

This module does not import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse

from tfrl_systems.policies.numpy_graph_encoder import (
    ENCODER,
    Arrays,
    NumpyGraphEncoder,
    split_batch,
)
from tfrl_systems.policies.numpy_neighbourhoods import NeighbourhoodScorer
from tfrl_systems.policies.numpy_network import Memoryless, within

_ZERO = np.array(0, np.float32)


class NumpyGraphNetwork(Memoryless):
    """The encoder and the head of a graph actor.

    Args:
      description: as `networks.graph_actors.GraphActorNetwork.describe` returns it.
      arrays: the network's variables, named as by its `named_variables`.
    """

    def __init__(self, description: Mapping[str, Any], arrays: Arrays) -> None:
        self._masked = np.float32(description["masked"])
        # Policies that were saved before there was a choice see a list.
        self._num_places = int(description.get("num_places", 0))
        self._description = dict(description)
        self.update(arrays)

    def update(self, arrays: Arrays) -> None:
        """Replace all variables; `arrays` as in the constructor."""
        about, encoder, head = self._description, within(ENCODER, arrays), within("head/", arrays)
        self._encoder = NumpyGraphEncoder(about, encoder)
        self._head = _HEADS[about["head"]](about, head)
        self._scorer = None
        if self._encoder.is_local and about["head"] == "local":
            self._scorer = NeighbourhoodScorer(about, encoder, head, self._head.rules)

    def begin(self, is_first: np.ndarray | None = None) -> None:
        """Forget what was computed before an episode begins; see `Memoryless.begin`."""
        # The last bits of a product depend on what else is computed with it. So an episode's
        # actions and their probabilities are the same in every process.
        if self._scorer is not None and (is_first is None or is_first.any()):
            self._scorer.forget()

    def parameters(self, observation: Arrays) -> dict[str, np.ndarray]:
        """Return the logits [B, A] of the listed actions, and the list [B, A, 2].

        A network that learned without a list returns the logits of all rules and locations instead.
        """
        if self._num_places:
            return self._numbered(observation)
        is_there = observation["action_mask"]
        logits = np.full(is_there.shape, self._masked, np.float32)
        if self._scorer is not None:
            logits[is_there] = self._scorer.logits(observation)
            return {"logits": logits, "actions": observation["actions"]}
        for row, graph in zip(logits, split_batch(observation), strict=True):
            (places,) = np.nonzero(graph["action_mask"])
            row[places] = self._head(*self._encoder(graph), graph, places)
        return {"logits": logits, "actions": observation["actions"]}

    def _numbered(self, observation: Arrays) -> dict[str, np.ndarray]:
        logits = [
            self._head.numbered(self._encoder(graph)[1]) for graph in split_batch(observation)
        ]
        rules, places = map(np.concatenate, zip(*logits, strict=True))
        counts = np.full(rules.shape, self._num_places, np.int32)
        return {"rule_logits": rules, "place_logits": places, "num_places": counts}


class _PointerHead:
    """A head like `networks.graph_heads.PointerHead`; it caches rules' vectors."""

    def __init__(self, description: Mapping[str, Any], arrays: Arrays) -> None:
        self._hash_size = int(description["hash_size"])
        self._max_logit = np.float32(description["max_logit"])
        self._cache: tuple[bytes, bytes, np.ndarray] | None = None
        self._arrays = arrays
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
        hidden += self.rules(graph["rule_ids"], graph["rule_targets"])[graph["actions"][places, 0]]
        hidden += np.dot(graph["action_features"][places], arrays["matches/w"])
        if "globals/w" in arrays:
            hidden += g @ arrays["globals/w"] + arrays["globals/b"]
        scores = np.dot(np.maximum(hidden, _ZERO, hidden), arrays["score/w"])[:, 0]
        most = self._max_logit
        return most * np.tanh(scores / most) if most else scores

    def rules(self, ids: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the vectors of all rules and of NO-OP, [R + 1, H]."""
        # Another thread may replace the cache, so it is read once.
        cache, key = self._cache, (ids.tobytes(), targets.tobytes())
        if cache and cache[:2] == key:
            return cache[2]
        arrays, size = self._arrays, self._hash_size
        # Operators that are newer than the policy count as none, as for nodes.
        familiar = np.where(targets < len(arrays["targets"]), targets, 0)
        built = arrays["targets"][familiar] * (familiar > 0)[..., np.newaxis]
        vectors = arrays["first_hash"][ids % size] + arrays["second_hash"][ids // size % size]
        vectors = (vectors + built.sum(axis=-2)).astype(np.float32)
        self._cache = *key, vectors
        return vectors


class _HierarchicalHead:
    """A head like `networks.graph_heads.HierarchicalHead`."""

    def __init__(self, description: Mapping[str, Any], arrays: Arrays) -> None:
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

    def numbered(self, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the logits of all rules [1, R + 1], and of all locations of each [1, R + 1, S]."""
        arrays = self._arrays
        hidden = np.maximum(g @ arrays["xfer_hidden/w"] + arrays["xfer_hidden/b"], _ZERO)
        rules = hidden @ arrays["xfers/w"] + arrays["xfers/b"]
        hidden = g @ arrays["location_hidden/w"] + arrays["location_hidden/b"]
        hidden = np.maximum(hidden + arrays["location_xfers"], _ZERO)
        places = hidden @ arrays["locations/w"] + arrays["locations/b"]
        return rules, places[np.newaxis]


_HEADS: dict[str, Any] = {
    "pointer": _PointerHead,
    "local": _PointerHead,
    "hierarchical": _HierarchicalHead,
}


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
