"""Score the matches of graphs by their neighbourhoods, each neighbourhood once.

A network without a global vector ("local") gives a match a logit that depends on nothing but what
is within K edges of the nodes that the match touches; K is the number of rounds. A step of an
episode changes a few nodes, and many steps have been taken before. So nearly all neighbourhoods of
a graph were met earlier, and what was computed for them is remembered by their colours
(`numpy_colours`). Colours are cheap, and are computed for every graph as a whole. The rest is
computed only for nodes and matches whose colour is new, for those of several graphs together.

The arithmetic is that of `numpy_graph_encoder` and `numpy_graph`; the results agree up to rounding.
Two things are different, so that few calls of NumPy are needed:

  - what a node sends in each round is remembered with its vectors, so nodes whose colour is new
    need nothing else of the nodes around them;
  - a norm's mean is subtracted by the matrix before it, and its scale is in the matrices after it.

A result depends on its colour alone, to the bit, whatever was computed before or with it. To this
end the messages of a node are summed in float64, where their order does not matter (its last bits
are lost in float32), and `_rowwise` multiplies a row in the same way whatever the others are.

This module does not import TensorFlow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse

from tfrl_systems.policies.numpy_colours import MOST_COLOURS, Arrays, Colours, ColourTable
from tfrl_systems.policies.numpy_graph_encoder import within

_ZERO = np.array(0, np.float32)
_ROWS_AT_ONCE = 8

_GRAPH = ("nodes", "edges", "senders", "receivers", "rule_ids", "rule_targets")
_LISTED = ("action_nodes", "action_inputs", "action_features", "actions")
_NEEDED = (*_GRAPH, "n_node", "n_edge", *_LISTED, "action_mask")


class Memory(threading.local):
    """What a thread remembers of the neighbourhoods that it has met; a copy begins empty.

    Attributes:
      rows: what is remembered of nodes, float32 [capacity, W]; the first `num_rows` are used.
      num_rows: how many they are.
      nodes: the row of each colour that nodes have after all rounds.
      logits: the logit of each colour of a match.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self.clear()

    def __reduce__(self) -> Any:
        return type(self), (self._width,)

    def clear(self) -> None:
        """Forget everything."""
        self.rows, self.num_rows = np.empty((256, self._width), np.float32), 0
        self.nodes, self.logits = ColourTable(np.intp), ColourTable(np.float32)

    def make_room(self) -> None:
        """Forget everything if it is too much."""
        if max(self.nodes.size, self.logits.size) > MOST_COLOURS:
            self.clear()

    def add(self, colours: np.ndarray, rows: np.ndarray) -> None:
        """Remember rows [n, W] of new nodes behind all others, by their colours [n]."""
        begin, self.num_rows = self.num_rows, self.num_rows + len(rows)
        if self.num_rows > len(self.rows):
            grown = np.empty((2 * self.num_rows, self._width), np.float32)
            grown[:begin] = self.rows[:begin]
            self.rows = grown
        self.rows[begin : self.num_rows] = rows
        self.nodes.put(colours, np.arange(begin, self.num_rows))


class NeighbourhoodScorer:
    """A local encoder of two-way rounds, and the head after it.

    What is remembered of a node is a row of 4 K + 1 vectors of H numbers. For each round these are
    the node's vector before the round, what it keeps, and what it sends along its edges and against
    them: h, C h, A h and B h of `networks.graph_encoder`. The last one is its vector after all
    rounds. All vectors but the last are the normed ones divided by √H, without scale and offset.

    Args:
      description: the encoder's width, rounds, features and norm_epsilon, and the head's max_logit.
      encoder, head: their variables, by their places within them.
      rules_fn: maps `rule_ids` and `rule_targets` to the head's vectors of rules.
    """

    def __init__(
        self,
        description: Mapping[str, Any],
        encoder: Arrays,
        head: Arrays,
        rules_fn: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ) -> None:
        self._width, self._num_rounds = int(description["width"]), int(description["rounds"])
        self._num_kinds = int(description["features"]["num_kinds"])
        self._epsilon = np.float32(description["norm_epsilon"])
        self._max_logit = np.float32(description["max_logit"])
        self._rules_fn = rules_fn
        self._memory = Memory((4 * self._num_rounds + 1) * self._width)
        self._fold({name: array.astype(np.float64) for name, array in encoder.items()})
        stacked = [*np.split(head["nodes/w"], 3, axis=1), head["matches/w"]]
        self._matches, self._score = np.concatenate(stacked), head["score/w"][:, 0].copy()

    def _fold(self, arrays: Arrays) -> None:
        """Make the matrices and biases of the rounds from float64 arrays; see the module."""
        size = self._width
        # Of each row's four parts, only what a node keeps is cut off at 0.
        self._least = np.array([-np.inf] * size + [0] * size, np.float32)
        centre = (np.eye(size) - 1 / size) / np.sqrt(size)
        self._kinds = _single(arrays["kinds"] @ centre)
        self._first = _single(arrays["nodes/w"] @ centre), _single(arrays["nodes/b"] @ centre)
        scale, offset = arrays["nodes_norm/scale"] * np.sqrt(size), arrays["nodes_norm/offset"]
        self._send, self._combine, edges = [], [], []
        for number in range(self._num_rounds):
            own = within(f"round{number}/", arrays)
            forth, back, keep = np.split(own["send/w"], 3, axis=1)
            sent = np.concatenate((keep, forth, back), axis=1)
            bias = offset @ sent + np.roll(own["send/b"], size)
            send = np.concatenate((np.eye(size), scale[:, np.newaxis] * sent), axis=1)
            self._send.append((_single(send), _single(np.concatenate((np.zeros(size), bias)))))
            forth, back, keep = np.split(own["combine/w"], 3)
            bias = (offset + own["combine/b"])[np.newaxis]
            parts = (np.diag(scale), keep, forth, back, bias)
            self._combine.append(_single(np.concatenate(parts) @ centre))
            edges.append(np.concatenate((own["edges_in/w"], own["edges_out/w"])))
            scale, offset = own["norm/scale"] * np.sqrt(size), own["norm/offset"]
        self._last = _single(scale), _single(offset)
        # Those of all rounds, [2 F, K H], serve in one product.
        self._edges = _single(np.concatenate(edges, axis=1))

    def forget(self) -> None:
        """Forget what was computed so far."""
        self._memory.clear()

    def logits(self, observation: Arrays) -> np.ndarray:
        """Return the logits of the matches that observations [B, …] list, float32, row by row."""
        memory = self._memory
        memory.make_room()
        graph = _joined(observation)
        colours = Colours(graph, self._num_rounds)
        logits, missing = memory.logits.find(colours.matches)
        if len(missing):
            logits[missing] = self._scores(graph, missing, self._encode(graph, colours))
            memory.logits.put(colours.matches.take(missing), logits.take(missing))
        return logits

    def _encode(self, graph: Arrays, colours: Colours) -> np.ndarray:
        """Remember all nodes; return their rows in the memory, int [N]."""
        memory = self._memory
        rows, missing = memory.nodes.find(colours.nodes)
        if len(missing):
            of_missing, firsts, copies = np.unique(
                colours.nodes.take(missing), return_index=True, return_inverse=True
            )
            rows[missing] = memory.num_rows + copies
            area = _Area(graph, colours, rows, missing.take(firsts), memory)
            memory.add(of_missing, self._computed(area))
        return rows

    def _computed(self, area: _Area) -> np.ndarray:
        """Return what is remembered of the new nodes of an area."""
        size, num_rounds, num = self._width, self._num_rounds, area.num_new
        rows = np.empty((num + len(area.rim), (4 * num_rounds + 1) * size), np.float32)
        rows[num:] = area.rim
        vectors, new = rows.reshape(-1, size), rows[:num]
        shares = _rowwise(area.edges, self._edges)
        # Where each message's vector stands among `vectors`, in the first round.
        sent = area.origins * (4 * num_rounds + 1) + area.ways
        # What the next vector is made from: the vector, what it keeps, its messages, and 1.
        inputs = _blocks(num, 4 * size + 1)
        inputs[:, 4 * size] = 1
        h = self._first_vectors(area.nodes)
        for number in range(num_rounds):
            own = new[:, 4 * number * size : (4 * number + 4) * size]
            kernel, bias = self._send[number]
            np.add(_rowwise(self._normed(h), kernel)[:num], bias, own)
            messages = vectors.take(sent, axis=0)
            messages += shares[: len(sent), number * size : (number + 1) * size]
            sent += 4
            np.maximum(messages, _ZERO, messages)
            np.maximum(own[:, : 2 * size], self._least, inputs[:num, : 2 * size])
            inputs[:num, 2 * size : 4 * size] = area.sums(messages).reshape(num, -1)
            h = _rowwise(inputs, self._combine[number])
        scale, offset = self._last
        self._normed(h)
        h *= scale
        np.add(h[:num], offset, new[:, -size:])
        return new

    def _first_vectors(self, nodes: np.ndarray) -> np.ndarray:
        """Return the vectors of nodes with features [N, F] before the first norm, and padding."""
        kinds = nodes[:, 0].astype(np.intp)
        kinds[(kinds < 0) | (kinds >= self._num_kinds)] = 0
        kernel, bias = self._first
        inputs = _blocks(len(nodes), nodes.shape[1] - 1)
        inputs[: len(nodes)] = nodes[:, 1:]
        h = _rowwise(inputs, kernel)
        h += bias
        h[: len(nodes)] += self._kinds.take(kinds, axis=0)
        return h

    def _normed(self, h: np.ndarray) -> np.ndarray:
        """Divide rows of the mean 0, which are divided by √H, by their deviations, in place."""
        variances = np.einsum("nh,nh->n", h, h)
        variances += self._epsilon
        h /= np.sqrt(variances, variances)[:, np.newaxis]
        return h

    def _scores(self, graph: Arrays, matches: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the logits [M] of some matches, whose nodes have vectors at `places` [N]."""
        listed = {name: graph[name][matches] for name in _LISTED}
        touched, num_matches = listed["action_nodes"], len(matches)
        rows = np.concatenate((touched[:, :1], touched, listed["action_inputs"]), axis=1)
        is_node = rows < len(places)
        counts = np.add.reduceat(is_node, (0, 1, 1 + touched.shape[1]), axis=1, dtype=np.intp)
        counts = counts.ravel()
        present = counts.nonzero()[0]
        starts = (counts.cumsum() - counts).take(present)
        h = self._memory.rows[:, -self._width :].take(places.take(rows[is_node]), axis=0)
        means = np.zeros((len(counts), self._width), np.float32)
        means[present] = np.add.reduceat(h, starts, axis=0)
        means /= np.maximum(counts, 1).astype(np.float32)[:, np.newaxis]
        inputs = _blocks(num_matches, len(self._matches))
        inputs[:num_matches, : 3 * self._width] = means.reshape(num_matches, -1)
        inputs[:num_matches, 3 * self._width :] = listed["action_features"]
        hidden = _rowwise(inputs, self._matches)[:num_matches]
        rules = self._rules_fn(graph["rule_ids"], graph["rule_targets"])
        hidden += rules.take(listed["actions"][:, 0], axis=0)
        scores: np.ndarray = np.einsum("mh,h->m", np.maximum(hidden, _ZERO, hidden), self._score)
        most = self._max_logit
        return most * np.tanh(scores / most) if most else scores


class _Area:
    """Nodes whose colours are new, and the nodes around them that send them messages.

    Args:
      graph, colours: the graph.
      places: the row of each node in the memory, int [N]; new ones come behind all that it has.
      new: rows of nodes in the graph, one of each new colour, in the order of their places.
      memory: what is remembered.

    Attributes:
      num_new: the number n of new nodes.
      nodes: their features, [n, F].
      rim: what is remembered of the r nodes around them.
      edges: the features of the E edges that bring messages, in the columns of their way, and
        padding: [E …, 2 F].
      origins: where the messages come from: numbers from 0 to n + r, int [E].
      ways: 2 for each message along an edge, 3 for those against it.
    """

    def __init__(
        self,
        graph: Arrays,
        colours: Colours,
        places: np.ndarray,
        new: np.ndarray,
        memory: Memory,
    ) -> None:
        num_nodes, self.num_new = len(graph["nodes"]), len(new)
        self.nodes = graph["nodes"].take(new, axis=0)
        # Of each node, first the edges that end at it, then those that begin at it.
        ends = np.stack((new, new + num_nodes), axis=1).ravel()
        begins = colours.bounds.take(ends)
        counts = colours.bounds.take(ends + 1) - begins
        stops = np.zeros(len(ends) + 1, np.int32)
        counts.cumsum(out=stops[1:])
        edges = np.arange(stops[-1]) + (begins - stops[:-1]).repeat(counts)
        ones, columns = np.ones(len(edges)), np.arange(len(edges), dtype=np.int32)
        shape = (len(ends), len(edges))
        self._sums = scipy.sparse.csr_matrix((ones, columns, stops), shape, copy=False)
        is_back = edges >= len(graph["edges"])
        features = graph["edges"].take(colours.edges.take(edges), axis=0)
        num_features = features.shape[1]
        self.edges, self.ways = _blocks(len(edges), 2 * num_features), is_back + 2
        by_way = self.edges.reshape(-1, 2, num_features)
        by_way[np.arange(len(edges)), is_back.view(np.int8)] = features
        self.origins = places.take(colours.origins.take(edges)) - memory.num_rows
        is_old = self.origins < 0
        old, rows = np.unique(self.origins[is_old], return_inverse=True)
        self.origins[is_old] = self.num_new + rows
        self.rim = memory.rows.take(old + memory.num_rows, axis=0)

    def sums(self, messages: np.ndarray) -> np.ndarray:
        """Return the sums of messages [E, H] that come along the edges and against them, [2 n, H].

        The sums are in float64. Those of a node stand one after the other.
        """
        sums: np.ndarray = self._sums @ messages.astype(np.float64)
        return sums


def _blocks(num_rows: int, num_columns: int) -> np.ndarray:
    """Return zeros with room for some rows, for `_rowwise`."""
    num_blocks = -(-num_rows // _ROWS_AT_ONCE)
    return np.zeros((num_blocks * _ROWS_AT_ONCE, num_columns), np.float32)


def _rowwise(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return rows [N, F] times a matrix [F, W]; N is a multiple of `_ROWS_AT_ONCE`.

    In one large product, the last bits of a row depend on how many rows there are and where it
    stands. Few rows at a time, always as many, are all multiplied alike.
    """
    blocks = rows.reshape(-1, _ROWS_AT_ONCE, rows.shape[1])
    products: np.ndarray = np.matmul(blocks, matrix).reshape(len(rows), matrix.shape[1])
    return products


def _single(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, np.float32)


def _joined(observation: Arrays) -> dict[str, np.ndarray]:
    """Return observations [B, …] as one graph without padding that lists the allowed matches.

    Rows of nodes and of rules count through all graphs. The row after the last node means no node.
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
    for name in ("action_nodes", "action_inputs"):
        own[name] = np.minimum(own[name], num_nodes)
    own["nodes"] = own["nodes"][:num_nodes]
    for name in ("edges", "senders", "receivers"):
        own[name] = own[name][:num_edges]
    return own
