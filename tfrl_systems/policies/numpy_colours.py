"""Colours of nodes and matches: hashes of all that a local network's result for them depends on.

    c0_v = hash(features of v)
    ck_v = hash(ck-1_v, Σ hash(e_uv) ck-1_u + Σ hash'(e_vw) ck-1_w)    u: inputs of v; w: its users
    c_m  = hash(rule, features of the match m, cK of the nodes that m touches and reads)

This is the refinement of Weisfeiler and Leman: two nodes of the same colour ck look alike within k
edges. Colours have 64 bits. Of a million different ones, two are equal by chance with a probability
below 1e-5; it is that high only where all features are round numbers, whose last bits are 0.

They are those of one graph without padding, which `joined_graph` makes of a batch.

This module does not import TensorFlow.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]

_GRAPH = ("nodes", "edges", "senders", "receivers", "rule_ids", "rule_targets")
_LISTED = ("action_nodes", "action_inputs", "action_features", "actions")
_NEEDED = (*_GRAPH, "n_node", "n_edge", *_LISTED, "action_mask")

# Odd factors of hashes. They are fixed, so that colours are the same in every process.
_FACTORS = np.random.default_rng(0).integers(1 << 63, size=(7, 256), dtype=np.uint64) * 2 + 1
_NODES, _EDGES, _WAYS, _TOUCHED, _INPUTS, _RULES, _MATCHES = _FACTORS
_OWN, _AGAINST = _WAYS[:2]
_MIX = np.uint64(0xD6E8FEB86659FD93)
_ONE, _HALF, _QUARTER = np.uint64(1), np.uint64(32), np.uint32(16)
_TABLE_BITS = 17
_FIRST_PLACE, _SECOND_PLACE = np.uint64(64 - _TABLE_BITS), np.uint64((1 << _TABLE_BITS) - 1)

MOST_COLOURS = 1 << 14
"""A table should be emptied once it has more colours than this."""


def joined_graph(observation: Arrays) -> dict[str, np.ndarray]:
    """Return observations [B, …] as one graph without padding that lists the allowed matches.

    Rows of nodes and of rules count through all graphs. Rows after the last node mean no node.
    """
    graphs = [
        _without_padding({name: observation[name][number] for name in _NEEDED})
        for number in range(len(observation["n_node"]))
    ]
    if len(graphs) == 1:
        return graphs[0]
    total, first_node, first_rule = sum(len(graph["nodes"]) for graph in graphs), 0, 0
    for graph in graphs:
        num_nodes = len(graph["nodes"])
        for name in ("senders", "receivers"):
            graph[name] = graph[name] + first_node
        for name in ("action_nodes", "action_inputs"):
            rows = graph[name]
            graph[name] = np.where(rows < num_nodes, rows + first_node, total)
        graph["actions"] = graph["actions"] + (first_rule, 0)
        first_node, first_rule = first_node + num_nodes, first_rule + len(graph["rule_ids"])
    return {name: np.concatenate([graph[name] for graph in graphs]) for name in graphs[0]}


def _without_padding(own: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the fields of one observation without padding."""
    num_nodes, num_edges = int(own.pop("n_node")[0]), int(own.pop("n_edge")[0])
    listed = own.pop("action_mask").nonzero()[0]
    # Usually they stand side by side, and nothing needs to be copied.
    is_whole = len(listed) and listed[-1] - listed[0] + 1 == len(listed)
    places = slice(listed[0], listed[-1] + 1) if is_whole else listed
    for name in _LISTED:
        own[name] = own[name][places]
    own["nodes"] = own["nodes"][:num_nodes]
    for name in ("edges", "senders", "receivers"):
        own[name] = own[name][:num_edges]
    return own


class ColourTable:
    """Numbers by colours; many are looked up at once.

    A colour has two places, and takes each from the colour that had it. So a few colours lose both,
    and are not found when they are looked for.

    Attributes:
      size: how many colours were put into the table.
    """

    def __init__(self, dtype: type) -> None:
        self._colours = np.zeros((2, 1 << _TABLE_BITS), np.uint64)
        self._numbers: np.ndarray = np.zeros((2, 1 << _TABLE_BITS), dtype)
        self.size = 0

    def clear(self) -> None:
        """Forget all colours."""
        if self.size:
            self._colours[:], self.size = 0, 0

    def find(self, colours: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of each colour [N], and which colours are not there, int [M]."""
        places = (colours >> _FIRST_PLACE).view(np.int64)
        numbers = self._numbers[0].take(places)
        missing = (self._colours[0].take(places) != colours).nonzero()[0]
        if len(missing):
            left = colours.take(missing)
            places = (left & _SECOND_PLACE).view(np.int64)
            numbers[missing] = self._numbers[1].take(places)
            missing = missing[self._colours[1].take(places) != left]
        return numbers, missing

    def put(self, colours: np.ndarray, numbers: np.ndarray) -> None:
        """Set the numbers of colours that are not there."""
        self.size += len(colours)
        for number, places in enumerate((colours >> _FIRST_PLACE, colours & _SECOND_PLACE)):
            places = places.view(np.int64)
            self._colours[number][places] = colours
            self._numbers[number][places] = numbers


class Colours:
    """The colours of a graph's nodes and matches, and its edges in both directions.

    Each edge counts twice: as what its receiver gets from its sender, and as what its sender gets
    from its receiver. Node by node, first come those that end at it, then those that begin at it.

    Args:
      graph: the fields of an observation without padding. Rows of nodes from N on mean no node.
      num_rounds: K.

    Attributes:
      rounds: those of nodes after 0 to K rounds, uint64 [K + 1, N].
      matches: uint64 [M].
      origins: the row of the node that each edge brings a message from, int [2 E].
      edges: the row of each edge's features, int [2 E], plus E where the edge begins at the node.
      bounds: where each node's edges begin, and where the last ones stop, int [N + 1].
    """

    def __init__(self, graph: Arrays, num_rounds: int) -> None:
        num_nodes = len(graph["nodes"])
        ends = np.concatenate((graph["receivers"], graph["senders"]))
        # Short numbers are sorted by their digits, which is faster.
        keys = ends.astype(np.uint16) if num_nodes < 1 << 16 else ends
        self.edges = keys.argsort(kind="stable")
        self.bounds = np.zeros(num_nodes + 1, np.intp)
        np.bincount(ends, minlength=num_nodes).cumsum(out=self.bounds[1:])
        origins = np.concatenate((graph["senders"], graph["receivers"]))
        self.origins = origins.take(self.edges).astype(np.intp)
        # An even factor would lose bits of what it multiplies.
        of_edges = of_rows(graph["edges"], _EDGES) | _ONE
        of_edges = np.concatenate((of_edges, of_edges * _AGAINST)).take(self.edges)
        self.rounds = np.empty((num_rounds + 1, num_nodes), np.uint64)
        self.rounds[0] = of_rows(graph["nodes"], _NODES)
        self._spread(of_edges)
        self.matches = _of_matches(graph, self.rounds[-1])

    def _spread(self, of_edges: np.ndarray) -> None:
        """Compute the colours after each round from those before it."""
        sums = np.zeros(len(of_edges) + 1, np.uint64)
        messages = np.empty(len(of_edges), np.uint64)
        for last, colours in itertools.pairwise(self.rounds):
            # With "clip", which changes nothing here, the buffer is used as it is.
            last.take(self.origins, out=messages, mode="clip")
            np.multiply(messages, of_edges, messages)
            messages.cumsum(out=sums[1:])
            # Differences of sums without a bound are exact, because unsigned numbers wrap around.
            at_bounds = sums.take(self.bounds)
            np.multiply(last, _OWN, colours)
            colours += at_bounds[1:]
            colours -= at_bounds[:-1]
            _mixed(colours)


def of_rows(rows: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return a hash of each row of numbers of 32 bits [N, F], uint64 [N]."""
    bits = rows.view(np.uint32)
    # The last bits of most floats are 0; without others in their place, those of a sum were too.
    numbers = (bits ^ bits >> _QUARTER).astype(np.uint64)
    hashes = numbers @ factors[: rows.shape[1]]
    # The colour 0 means that a place is free, so zeros must not have it.
    hashes += factors[-1]
    return _mixed(hashes)


def _of_matches(graph: Arrays, of_nodes: np.ndarray) -> np.ndarray:
    """Return the colours of the listed matches from those of the nodes after all rounds."""
    with_none = np.zeros(len(of_nodes) + 1, np.uint64)
    with_none[:-1] = of_nodes
    colours = of_rows(graph["action_features"], _MATCHES)
    for name, factors in (("action_nodes", _TOUCHED), ("action_inputs", _INPUTS)):
        rows = graph[name]
        colours += with_none.take(rows, mode="clip") @ factors[: rows.shape[1]]
    of_rules = _of_rules(graph["rule_ids"].tobytes(), graph["rule_targets"].tobytes())
    colours += of_rules.take(graph["actions"][:, 0])
    return _mixed(colours)


# Observations of one environment have the same rules.
@functools.lru_cache(maxsize=8)
def _of_rules(ids: bytes, targets: bytes) -> np.ndarray:
    columns = np.frombuffer(ids, np.int32)[:, np.newaxis]
    rows = np.frombuffer(targets, np.int32).reshape(len(columns), -1)
    return of_rows(np.concatenate((columns, rows), axis=1), _RULES)


def _mixed(hashes: np.ndarray) -> np.ndarray:
    """Spread the bits of sums, in place."""
    hashes ^= hashes >> _HALF
    hashes *= _MIX
    return hashes
