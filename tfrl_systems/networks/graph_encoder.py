"""The graph encoder, which computes a vector for each node and one for each graph.

It encodes and processes (P. Battaglia et al.: Relational inductive biases, deep learning, and graph
networks, 2018) by message passing (thesis, 3.1.1):

    kind ─▶ embedding ┐
    features ─▶ linear ┴▶ norm ─▶ nodes ──▶ round 1 ─▶ … ─▶ round K ─▶ nodes   [N, H]
    globals  ─▶ linear ─▶ norm ─▶ global ─▶    "               "    ─▶ globals [B, H]

One round updates each node v. The nodes u are those whose tensors v uses (edges u → v). The nodes w
are those that use the tensors of v (edges v → w). g is the global vector of the graph:

    a_v  = Σ_{u→v} relu(A h_u + E e_uv)          messages from its inputs
    b_v  = Σ_{v→w} relu(B h_w + F e_vw)          messages from its users
    c_v  = relu(C h_v + D g)                     the node itself
    h'_v = norm(h_v + W [a_v, b_v, c_v])
    g'   = norm(g + V relu(U [g, mean_v h'_v]))

That is the block "two_way". It departs from the full GN block (thesis, Algorithm 2): edges keep
their features, a message reads its sender and its edge but neither its receiver nor g, messages go
against the edges, too, and g reads no edges. The reasons: whether a rule matches hangs on who uses
a tensor as well as on what makes it, and edges without vectors of their own are cheaper to learn.
`tools/studies/RESULTS.md` compares both.

The block "full" is Algorithm 2 (`FullRound`), for edges u → v with vectors e of their own:

    e'_k = φᵉ(e_k, v_r, v_s, g)        r, s: the nodes that edge k leads to and from
    v'_i = φᵛ(Σ_{r = i} e'_k, v_i, g)
    g'   = φᵘ(Σ_k e'_k, Σ_i v'_i, g)

The thesis leaves φ open, and says of ρ that it is a segment sum. Here φ(x) = W' relu(W x + b) + b',
and a norm follows each block, since sums over whole graphs would grow from block to block.

`graphs_of` removes the padding of observations first. Edges are sorted by the node at which they
end, because `sorted_sum` needs that order.

`policies/numpy_graph.py` does the same arithmetic in NumPy.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf
from graph_nets import blocks, graphs, modules

TWO_WAY, FULL = BLOCKS = ("two_way", "full")
"""What a round of message passing is."""

NORM_EPSILON = 1e-5
"""Added to variances, so that none is 0 when a vector is divided by their root."""


@dataclasses.dataclass(frozen=True)
class Features:
    """The numbers of features of graphs.

    Attributes:
      num_kinds: number of kinds of nodes. A node's first feature is its kind, a whole number below.
      nodes: number of features of a node, including its kind.
      edges: number of features of an edge.
      globals: number of features of a graph.
    """

    num_kinds: int
    nodes: int
    edges: int
    globals: int

    @classmethod
    def of(cls, observation_spec: Mapping[str, Any]) -> Features:
        """Read the spec of graph observations."""
        sizes = [int(observation_spec[name].shape[-1]) for name in ("nodes", "edges", "globals")]
        # The targets of rules are kinds of nodes; 0 is none.
        return cls(int(np.max(observation_spec["rule_targets"].maximum)) + 1, *sizes)


def graphs_of(observation: Mapping[str, tf.Tensor]) -> graphs.GraphsTuple:
    """Return the graphs of observations [B, …], without padding.

    They are in one GraphsTuple, in which the nodes of all graphs are numbered consecutively.
    """
    n_node = observation["n_node"][:, 0]
    is_node = tf.sequence_mask(n_node, tf.shape(observation["nodes"])[1])
    n_edge = observation["n_edge"][:, 0]
    is_edge = tf.sequence_mask(n_edge, tf.shape(observation["edges"])[1])
    first_rows = first_nodes(n_node)[:, tf.newaxis]
    return graphs.GraphsTuple(
        nodes=tf.boolean_mask(observation["nodes"], is_node),
        edges=tf.boolean_mask(observation["edges"], is_edge),
        senders=tf.boolean_mask(observation["senders"] + first_rows, is_edge),
        receivers=tf.boolean_mask(observation["receivers"] + first_rows, is_edge),
        globals=observation["globals"][:, 0],
        n_node=n_node,
        n_edge=n_edge,
    )


def first_nodes(n_node: tf.Tensor) -> tf.Tensor:
    """Return the row of each graph's first node, int32 [B], among the nodes of all graphs."""
    return tf.cumsum(n_node, exclusive=True)


def sorted_sum(data: tf.Tensor, segments: tf.Tensor, num_segments: tf.Tensor) -> tf.Tensor:
    """Sum rows [N, H] by segments [N], which ascend; return [num_segments, H]."""
    # `segment_sum` ends with the last segment that has a row.
    sums = tf.math.segment_sum(data, segments)
    return tf.pad(sums, [[0, num_segments - tf.shape(sums)[0]], [0, 0]])


class Drawn(snt.initializers.Initializer):
    """Draws normal weights whose std is `gain` divided by the root of the number of inputs."""

    def __init__(self, generator: np.random.Generator, gain: float = 1.0) -> None:
        self._generator = generator
        self._gain = gain

    def __call__(self, shape: tf.TensorShape, dtype: tf.DType) -> tf.Tensor:
        """Return weights [inputs, outputs]."""
        scale = self._gain / math.sqrt(shape[0])
        return tf.constant(self._generator.normal(scale=scale, size=tuple(shape)), dtype)


def linear(
    generator: np.random.Generator,
    sizes: tuple[int, int],
    name: str,
    gain: float = 1.0,
    has_bias: bool = True,
) -> snt.Linear:
    """Make a linear layer from and to so many numbers (`sizes`), and its variables; see `Drawn`."""
    layer = snt.Linear(sizes[1], with_bias=has_bias, w_init=Drawn(generator, gain), name=name)
    layer(tf.zeros([1, sizes[0]]))
    return layer


class Norm(snt.Module):
    """A layer norm over the last axis of size `width`, with a faster gradient than Sonnet's."""

    def __init__(self, width: int, name: str) -> None:
        super().__init__(name=name)
        self.scale = tf.Variable(tf.ones([width]), name="scale")
        self.offset = tf.Variable(tf.zeros([width]), name="offset")

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        """Give rows [N, H] mean 0 and variance 1, then scale and shift them."""
        return standardised(values) * self.scale + self.offset


@tf.custom_gradient
def standardised(values: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Give rows [N, H] mean 0 and variance 1; the gradient has a closed form."""
    values -= _row_means(values)
    factors = tf.math.rsqrt(_row_means(values**2) + NORM_EPSILON)
    values *= factors

    def gradient(outer: tf.Tensor) -> tf.Tensor:
        return factors * (outer - _row_means(outer) - values * _row_means(outer * values))

    return values, gradient


def _row_means(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(values, axis=1, keepdims=True)


class Round(snt.Module):
    """One round of message passing between vectors of `width`, H, numbers; see `GraphEncoder`."""

    def __init__(
        self,
        width: int,
        num_edge_features: int,
        generator: np.random.Generator,
        name: str,
        has_globals: bool,
    ) -> None:
        super().__init__(name=name)
        # `send` holds A, B and C in one matrix; `combine` is W.
        self.send = linear(generator, (width, 3 * width), "send")
        self.edges_in = linear(generator, (num_edge_features, width), "edges_in", has_bias=False)
        self.edges_out = linear(generator, (num_edge_features, width), "edges_out", has_bias=False)
        self.hear = (
            linear(generator, (width, width), "hear", has_bias=False) if has_globals else None
        )
        self.combine = linear(generator, (3 * width, width), "combine")
        self.norm = Norm(width, "norm")
        self.global_hidden = linear(generator, (2 * width, width), "global_hidden")
        self.global_out = linear(generator, (width, width), "global_out")
        self.global_norm = Norm(width, "global_norm")
        self._sum_edges = blocks.ReceivedEdgesToNodesAggregator(sorted_sum)
        self._sum_nodes = blocks.NodesToGlobalsAggregator(sorted_sum)

    def __call__(
        self, forth: graphs.GraphsTuple, back: graphs.GraphsTuple
    ) -> tuple[graphs.GraphsTuple, graphs.GraphsTuple]:
        """Return the graphs, and the same with reversed edges, with new nodes and globals."""
        # The matrices are split, because splitting or joining arrays of all nodes costs more.
        from_inputs, from_users, own = (
            tf.nn.bias_add(tf.matmul(forth.nodes, kernel), bias)
            for kernel, bias in zip(
                tf.split(self.send.w, 3, axis=1), tf.split(self.send.b, 3), strict=True
            )
        )
        if self.hear is not None:
            own += blocks.broadcast_globals_to_nodes(
                forth.replace(globals=self.hear(forth.globals))
            )
        streams = [
            self._messages(forth, from_inputs, self.edges_in),
            self._messages(back, from_users, self.edges_out),
            tf.nn.relu(own),
        ]
        kernels = tf.split(self.combine.w, 3)
        products = [tf.matmul(*factors) for factors in zip(streams, kernels, strict=True)]
        nodes = self.norm(tf.nn.bias_add(tf.add_n([forth.nodes, *products]), self.combine.b))
        counts = tf.cast(tf.maximum(forth.n_node, 1), tf.float32)
        mean = self._sum_nodes(forth.replace(nodes=nodes)) / counts[:, tf.newaxis]
        hidden = tf.nn.relu(self.global_hidden(tf.concat([forth.globals, mean], axis=1)))
        new = {"nodes": nodes, "globals": self.global_norm(forth.globals + self.global_out(hidden))}
        return forth.replace(**new), back.replace(**new)

    def _messages(
        self, graph: graphs.GraphsTuple, sent: tf.Tensor, edges_layer: snt.Linear
    ) -> tf.Tensor:
        """Send vectors [N, H] along the edges, and sum the messages at each node, [N, H]."""
        along = blocks.broadcast_sender_nodes_to_edges(graph.replace(nodes=sent))
        messages = tf.nn.relu(along + edges_layer(graph.edges))
        return self._sum_edges(graph.replace(edges=messages))


class _Update(snt.Module):
    """φ: a perceptron with one hidden layer, from `num_inputs` vectors of `width` to one."""

    def __init__(
        self, num_inputs: int, width: int, generator: np.random.Generator, name: str
    ) -> None:
        super().__init__(name=name)
        self.hidden = linear(generator, (num_inputs * width, width), "hidden", math.sqrt(2.0))
        self.out = linear(generator, (width, width), "out")

    def __call__(self, values: tf.Tensor) -> tf.Tensor:
        return self.out(tf.nn.relu(self.hidden(values)))


class FullRound(snt.Module):
    """A full GN block (thesis, Algorithm 2) by graph_nets, and a norm; see the module.

    Attributes:
      block: Algorithm 2 alone; it joins the arguments of φ in the order in which they are printed.
    """

    def __init__(self, width: int, generator: np.random.Generator, name: str) -> None:
        super().__init__(name=name)
        self.edges = _Update(4, width, generator, "edges")
        self.nodes = _Update(3, width, generator, "nodes")
        self.globals = _Update(3, width, generator, "globals")
        self.block = modules.GraphNetwork(
            lambda: self.edges, lambda: self.nodes, lambda: self.globals
        )

    def __call__(self, graph: graphs.GraphsTuple) -> graphs.GraphsTuple:
        """Return the graph with new edges [E, H], nodes [N, H] and globals [B, H]."""
        graph = self.block(graph)
        # Nobody reads the last block's edges, so variables of their norm would have no gradient.
        return graph.map(standardised, fields=("edges", "nodes", "globals"))


class GraphEncoder(snt.Module):
    """Encodes graphs as vectors.

    The vectors do not depend on the order or the numbers of nodes and edges, up to rounding.

    Args:
      features: the numbers of features of the graphs.
      width: H, the length of the vectors of nodes and graphs.
      num_rounds: K; information travels one edge in each round.
      generator: draws the initial weights.
      has_globals: whether nodes get the global vector, the term D g of the module's docstring.
        Those of full blocks always do.
      block: one of `BLOCKS`.
    """

    def __init__(
        self,
        features: Features,
        width: int,
        num_rounds: int,
        generator: np.random.Generator,
        has_globals: bool = True,
        block: str = TWO_WAY,
    ) -> None:
        super().__init__(name="encoder")
        self.features = features
        self.width = width
        self.block = block
        self.kinds = tf.Variable(
            generator.normal(size=(features.num_kinds, width)).astype(np.float32), name="kinds"
        )
        self.nodes = linear(generator, (features.nodes - 1, width), "nodes")
        self.nodes_norm = Norm(width, "nodes_norm")
        self.globals = linear(generator, (features.globals, width), "globals")
        self.globals_norm = Norm(width, "globals_norm")
        if block == FULL:
            self.edges = linear(generator, (features.edges, width), "edges")
        self.rounds: list[Any] = [
            FullRound(width, generator, f"round{number}")
            if block == FULL
            else Round(width, features.edges, generator, f"round{number}", has_globals)
            for number in range(num_rounds)
        ]

    def __call__(self, graph: graphs.GraphsTuple) -> graphs.GraphsTuple:
        """Return the same graphs with vectors of nodes [N, H] and globals [B, H]."""
        kinds = tf.cast(graph.nodes[:, 0], tf.int32)
        # An unknown kind becomes kind 0, which no node has.
        is_known = (kinds >= 0) & (kinds < self.features.num_kinds)
        embedded = tf.gather(self.kinds, tf.where(is_known, kinds, 0))
        graph = graph.replace(
            nodes=self.nodes_norm(embedded + self.nodes(graph.nodes[:, 1:])),
            globals=self.globals_norm(self.globals(graph.globals)),
        )
        if self.block == FULL:
            graph = graph.replace(edges=standardised(self.edges(graph.edges)))
            for layer in self.rounds:
                graph = layer(graph)
            return graph
        turned = graph.replace(senders=graph.receivers, receivers=graph.senders)
        forth, back = _sorted(graph), _sorted(turned)
        for layer in self.rounds:
            forth, back = layer(forth, back)
        return forth


def _sorted(graph: graphs.GraphsTuple) -> graphs.GraphsTuple:
    """Return the graph with its edges sorted by the node that they end at."""
    order = tf.argsort(graph.receivers, stable=True)
    return graph.map(
        lambda field: tf.gather(field, order), fields=("edges", "senders", "receivers")
    )
