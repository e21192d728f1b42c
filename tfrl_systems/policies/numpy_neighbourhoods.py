"""Score the matches of graphs by their neighbourhoods, each neighbourhood once.

A network without a global vector ("local") gives a match a logit that depends on nothing but what
is within K edges of the nodes that the match touches; K is the number of rounds. A step of an
episode changes a few nodes, and many steps have been taken before. So nearly all neighbourhoods of
a graph were met earlier, and what was computed for them is remembered by their colours
(`numpy_colours`). Colours are cheap, and are computed for every graph as a whole. The rest is
computed only for nodes and matches whose colour is new, for those of several graphs together. A
step changes few nodes, and in each round what it changed is felt one edge farther away. So a node
is computed from the first round on after which its colour is new.

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

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfrl_systems.policies.numpy_colours import (
    MOST_COLOURS,
    Arrays,
    Colours,
    ColourTable,
    joined_graph,
)
from tfrl_systems.policies.numpy_network import within

_ZERO = np.array(0, np.float32)
_ROWS_AT_ONCE = 8


class Memory(threading.local):
    """What a thread remembers of the neighbourhoods that it has met; a copy begins empty.

    Attributes:
      vectors: what is remembered of nodes, float32 [capacity · V, H]: V vectors in a row for each.
        Those of row 0 are 0; it stands for no node.
      num_rows: how many rows are used.
      nodes: the row of each colour that nodes have after all rounds.
      rounds: for each round, a row of each colour that nodes have before it. What the row has for
        this round and for those before it depends on that colour alone.
      logits: the logit of each colour of a match.
    """

    def __init__(self, width: int, num_rounds: int) -> None:
        self._sizes = width, num_rounds
        self.vectors = np.zeros((2048 * (4 * num_rounds + 1), width), np.float32)
        self.nodes, self.logits = ColourTable(np.intp), ColourTable(np.float32)
        self.clear()

    def __reduce__(self) -> Any:
        return type(self), self._sizes

    def clear(self) -> None:
        """Forget everything."""
        self.num_rows = 1
        self.nodes.clear()
        self.logits.clear()
        self.rounds: list[dict[int, int]] = [{} for _ in range(self._sizes[1])]

    def make_room(self) -> None:
        """Forget everything if it is too much."""
        if max(self.nodes.size, self.logits.size) > MOST_COLOURS:
            self.clear()

    def add(self, colours: np.ndarray, counts: Sequence[int], copied: np.ndarray) -> np.ndarray:
        """Add rows of new nodes behind all others, by their colours [K + 1, n].

        Args:
          colours: those of the nodes before each round and after all, [K + 1, n].
          counts: how many of the nodes, the first ones, have new colours each time, [K + 1].
          copied: the rows that they begin as copies of, [n].

        Returns:
          The new rows, which are still to be computed, float32 [n, V H].
        """
        begin, self.num_rows = self.num_rows, self.num_rows + len(copied)
        rows = self.vectors.reshape(-1, (4 * len(self.rounds) + 1) * self._sizes[0])
        if self.num_rows > len(rows):
            grown = np.zeros((2 * self.num_rows, rows.shape[1]), np.float32)
            grown[:begin] = rows[:begin]
            rows, self.vectors = grown, grown.reshape(-1, self._sizes[0])
        rows[begin : self.num_rows] = rows.take(copied, axis=0)
        numbers = range(begin, self.num_rows)
        self.nodes.put(colours[-1], np.arange(begin, self.num_rows))
        for of_round, own, count in zip(self.rounds, colours, counts, strict=False):
            of_round.update(zip(own[:count].tolist(), numbers, strict=False))
        return rows[begin : self.num_rows]


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
        self._memory = Memory(self._width, self._num_rounds)
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
        graph = joined_graph(observation)
        colours = Colours(graph, self._num_rounds)
        logits, missing = memory.logits.find(colours.matches)
        if len(missing):
            logits[missing] = self._scores(graph, missing, self._encode(graph, colours))
            memory.logits.put(colours.matches.take(missing), logits.take(missing))
        return logits

    def _encode(self, graph: Arrays, colours: Colours) -> np.ndarray:
        """Remember all nodes; return their rows in the memory, int [N]."""
        memory = self._memory
        rows, missing = memory.nodes.find(colours.rounds[-1])
        if len(missing):
            new = _New(colours, missing, memory)
            added = memory.add(new.colours, new.counts, new.copied)
            rows[missing] = new.rows
            self._compute(added, _Area(graph, colours, rows, new))
        return rows

    def _compute(self, rows: np.ndarray, area: _Area) -> None:
        """Compute what is new in the rows of an area's nodes in the memory, [n, V H]."""
        size, vectors = self._width, self._memory.vectors
        shares = _rowwise(area.edges, self._edges)
        # Where each message's vector stands among `vectors`, by round.
        sent = area.origins * (4 * self._num_rounds + 1) + area.ways
        sent = sent + 4 * np.arange(self._num_rounds)[:, np.newaxis]
        # Where each message's numbers are added to.
        sums_at = _numbers_at(area.ends, size)
        # What the next vector is made from: the vector, what it keeps, its messages, and 1.
        inputs = _blocks(len(rows), 4 * size + 1)
        inputs[:, 4 * size] = 1
        h = self._first_vectors(area.nodes)
        for number, (count, next_count) in enumerate(itertools.pairwise(area.counts)):
            own = rows[:, 4 * number * size : (4 * number + 4) * size]
            kernel, bias = self._send[number]
            np.add(_rowwise(self._normed(h), kernel)[:count], bias, own[:count])
            num_edges = area.num_edges[number + 1]
            messages = vectors.take(sent[number, :num_edges], axis=0)
            messages += shares[:num_edges, number * size : (number + 1) * size]
            np.maximum(messages, _ZERO, messages)
            np.maximum(own[:next_count, : 2 * size], self._least, inputs[:next_count, : 2 * size])
            # These sums are in float64.
            sums = np.bincount(sums_at[: num_edges * size], messages.ravel(), 2 * next_count * size)
            inputs[:next_count, 2 * size : 4 * size] = sums.reshape(next_count, 2 * size)
            h = _rowwise(inputs[: _padded(next_count)], self._combine[number])
        scale, offset = self._last
        self._normed(h)
        h *= scale
        np.add(h[: len(rows)], offset, rows[:, -size:])

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
        size, num_matches = self._width, len(matches)
        step = 4 * self._num_rounds + 1
        touched, read = (
            graph[name].take(matches, axis=0) for name in ("action_nodes", "action_inputs")
        )
        nodes = np.concatenate((touched[:, :1], touched, read), axis=1)
        # Three means of each match: of its root, of what it touches and of what it reads.
        kinds = np.repeat((0, 1, 2), (1, touched.shape[1], read.shape[1]))
        of_match, column = (nodes < len(places)).nonzero()
        means_at = 3 * of_match + kinds.take(column)
        rows = places.take(nodes[of_match, column]) * step + (step - 1)
        h = self._memory.vectors.take(rows, axis=0)
        means = np.bincount(_numbers_at(means_at, size), h.ravel(), 3 * num_matches * size)
        counts = np.bincount(means_at, minlength=3 * num_matches)
        means = means.reshape(-1, size) / np.maximum(counts, 1)[:, np.newaxis]
        inputs = _blocks(num_matches, len(self._matches))
        inputs[:num_matches, : 3 * size] = means.reshape(num_matches, -1)
        inputs[:num_matches, 3 * size :] = graph["action_features"].take(matches, axis=0)
        hidden = _rowwise(inputs, self._matches)[:num_matches]
        rules = self._rules_fn(graph["rule_ids"], graph["rule_targets"])
        hidden += rules.take(graph["actions"][:, 0].take(matches), axis=0)
        scores: np.ndarray = np.einsum("mh,h->m", np.maximum(hidden, _ZERO, hidden), self._score)
        most = self._max_logit
        return most * np.tanh(scores / most) if most else scores


class _New:
    """Nodes whose last colours are new, one of each colour.

    They are ordered by the first of their colours that is new. So those whose colour is new before
    some round stand before the others.

    Args:
      colours: those of the graph.
      missing: rows of the nodes in the graph whose last colours are new, [M].
      memory: what is remembered.

    Attributes:
      nodes: their rows in the graph, int [n].
      colours: those before each round and after all, uint64 [K + 1, n].
      counts: how many of them have new colours each time, [K + 1].
      copied: for each of them, the row in the memory that has what is not new, int [n].
      rows: the rows in the memory that the missing nodes get, [M].
    """

    def __init__(self, colours: Colours, missing: np.ndarray, memory: Memory) -> None:
        *before, last = colours.rounds.take(missing, axis=1).tolist()
        # Of nodes with the same last colour, one is chosen.
        left = list(dict(zip(last, range(len(last)), strict=True)).values())
        self.counts, places, copied = [len(left)], [], []
        for of_round, own in zip(reversed(memory.rounds), reversed(before), strict=True):
            rows = [of_round.get(own[place], 0) for place in left]
            places += [place for place, row in zip(left, rows, strict=True) if row]
            copied += [row for row in rows if row]
            left = [place for place, row in zip(left, rows, strict=True) if not row]
            self.counts.insert(0, len(left))
        self.nodes = missing.take((places + left)[::-1])
        self.copied = np.array((copied + [0] * len(left))[::-1])
        self.colours = colours.rounds.take(self.nodes, axis=1)
        by_colour = dict(zip(self.colours[-1].tolist(), itertools.count(memory.num_rows)))
        self.rows = [by_colour[colour] for colour in last]


class _Area:
    """What the vectors of new nodes are computed from.

    Args:
      graph, colours: the graph.
      places: the row of each node in the memory, int [N].
      new: the n new nodes.

    Attributes:
      counts: how many of them have new colours before each round and after all, [K + 1].
      num_edges: how many edges bring messages to that many nodes, [K + 1].
      nodes: features of the first `counts[0]`, [n_0, F].
      edges: the features of the E edges that bring messages, in the columns of their way, and
        padding: [E …, 2 F].
      origins: rows in the memory of the nodes that the messages come from, int [E].
      ends: the nodes that they go to, twice the number in `new`, and 1 more for messages against
        the edge, int [E].
      ways: 2 for each message along an edge, 3 for those against it, int [E].
    """

    def __init__(self, graph: Arrays, colours: Colours, places: np.ndarray, new: _New) -> None:
        self.counts = new.counts
        self.nodes = graph["nodes"].take(new.nodes[: self.counts[0]], axis=0)
        begins = colours.bounds.take(new.nodes)
        counts = colours.bounds.take(new.nodes + 1) - begins
        stops = np.zeros(len(begins) + 1, np.intp)
        counts.cumsum(out=stops[1:])
        self.num_edges = stops.take(self.counts).tolist()
        at = np.arange(stops[-1]) + (begins - stops[:-1]).repeat(counts)
        self.origins = places.take(colours.origins.take(at))
        edges, (num_edges, num_features) = colours.edges.take(at), graph["edges"].shape
        is_back = (edges >= num_edges).astype(np.intp)
        self.ends, self.ways = 2 * np.arange(len(begins)).repeat(counts) + is_back, is_back + 2
        self.edges = _blocks(len(at), 2 * num_features)
        self.edges.reshape(-1, 2, num_features)[np.arange(len(at)), is_back] = graph["edges"].take(
            edges - num_edges * is_back, axis=0
        )


def _numbers_at(rows: np.ndarray, size: int) -> np.ndarray:
    """Return where the numbers of some rows [N] of a matrix [R, size] stand among all, [N size]."""
    return (rows[:, np.newaxis] * size + np.arange(size)).ravel()


def _padded(num_rows: int) -> int:
    """Return a number of rows that `_rowwise` can multiply."""
    return -(-num_rows // _ROWS_AT_ONCE) * _ROWS_AT_ONCE


def _blocks(num_rows: int, num_columns: int) -> np.ndarray:
    """Return zeros with room for some rows, for `_rowwise`."""
    return np.zeros((_padded(num_rows), num_columns), np.float32)


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
