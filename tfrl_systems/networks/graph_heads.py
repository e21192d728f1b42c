"""Heads that turn the vectors of a graph into logits of the allowed actions.

An action is one match of one rule, (xfer_id, location), or NO-OP. The observation lists the allowed
actions, and a head gives each of them a logit. There are three heads.

PointerHead scores each match by the nodes that it touches, not by its number:

    score = v · relu(T h_root + P mean_touched h + Q mean_inputs h + F f + r + G g),
    logit = C tanh(score / C)

    f: features of the match, the work that it adds or saves at once; r: vector of its rule

The root is the first node that the match replaces. C bounds the logits, and so how sure the head
can become (I. Bello et al.: Neural combinatorial optimization with reinforcement learning, 2016);
without C the logit is the score. The vector of a rule is made from `rule_ids` and `rule_targets`,
so the same weights work for another set of rules. NO-OP touches no nodes: its score comes from the
global vector g and its own r.

Without g it is the head "local", behind an encoder whose nodes do not get g either. It judges a
match by its neighbourhood alone, so it cannot memorise what merely identifies a model, such as the
number of nodes. (Nodes of full GN blocks get g all the same.)

HierarchicalHead is the thesis's way to choose (3.2.3). From g alone it first chooses the rule, then
the location given the rule, both by number:

    p(xfer, location) = p(xfer) p(location | xfer)

Its logits are therefore logarithms of probabilities. The thesis trains two policies, with a value
function each: that is the setting `two_policies` of PPO. Without it a pair is one action. Where
observations list no actions (`masked=false`), this head gives a logit to every rule and to every
location of each. The other heads score listed matches, so they cannot do without the list.

`policies/numpy_graph.py` does the same arithmetic in NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf
from graph_nets import graphs

from tfrl_systems.networks.distributions import MASKED
from tfrl_systems.networks.graph_encoder import Features, first_nodes, linear, sorted_sum

POINTER, LOCAL, HIERARCHICAL = HEADS = ("pointer", "local", "hierarchical")
"""What chooses an action."""

HASH_SIZE = 256
"""The number of rows of each of two tables. A rule's vector is the sum of a row of each, chosen by
two parts of its id. Two rules may share one row by chance, but hardly both (D. Svenstrup et al.:
Hash embeddings, 2017)."""

# The first scores are small, so the first policy is nearly uniform.
_OUTPUT_GAIN = 0.01


class PointerHead(snt.Module):
    """A head that scores matches by the nodes that they touch.

    Args:
      num_kinds: number of kinds of nodes.
      num_features: number of features of a match.
      width: H.
      max_logit: C, the bound of the logits; 0 for none.
      has_globals: whether it sees g.
      generator: draws the initial weights.
    """

    def __init__(
        self,
        num_kinds: int,
        num_features: int,
        width: int,
        max_logit: float,
        has_globals: bool,
        generator: np.random.Generator,
    ) -> None:
        super().__init__(name="pointer")
        self._max_logit, self._has_globals = max_logit, has_globals
        self.matches = linear(generator, (num_features, width), "matches", has_bias=False)
        self.nodes = linear(generator, (width, 3 * width), "nodes", has_bias=False)
        if has_globals:
            self.globals = linear(generator, (width, width), "globals")
        self.first_hash, self.second_hash, self.targets = (
            tf.Variable(generator.normal(scale=0.1, size=(size, width)).astype("f"), name=name)
            for name, size in (
                ("first_hash", HASH_SIZE),
                ("second_hash", HASH_SIZE),
                ("targets", num_kinds),
            )
        )
        self.score = linear(generator, (width, 1), "score", _OUTPUT_GAIN, has_bias=False)

    def __call__(
        self, encoded: graphs.GraphsTuple, observation: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Return logits [B, A] of the listed actions, MASKED for rows that list none."""
        places = tf.where(observation["action_mask"])
        graph_of = places[:, 0]
        parts = tf.split(self.nodes(encoded.nodes), 3, axis=1)
        touched = tf.gather_nd(observation["action_nodes"], places)
        xfers = tf.gather_nd(observation["actions"], places)[:, 0]
        numbers = tf.stack([tf.cast(graph_of, tf.int32), xfers], axis=1)
        hidden = tf.gather_nd(self._rules(observation), numbers)
        hidden += self.matches(tf.gather_nd(observation["action_features"], places))
        if self._has_globals:
            hidden += tf.gather(self.globals(encoded.globals), graph_of)
        for part, rows in zip(
            parts,
            (touched[:, :1], touched, tf.gather_nd(observation["action_inputs"], places)),
            strict=True,
        ):
            hidden += _mean_of_nodes(part, rows, graph_of, encoded.n_node)
        scores = self.score(tf.nn.relu(hidden))[:, 0]
        if self._max_logit:
            scores = self._max_logit * tf.tanh(scores / self._max_logit)
        return _listed(scores, places, observation)

    def _rules(self, observation: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Return the vectors of all rules and of NO-OP, [B, R + 1, H]."""
        ids, targets = observation["rule_ids"], observation["rule_targets"]
        is_there = tf.cast(targets > 0, tf.float32)[..., tf.newaxis]
        return (
            tf.gather(self.first_hash, ids % HASH_SIZE)
            + tf.gather(self.second_hash, ids // HASH_SIZE % HASH_SIZE)
            + tf.reduce_sum(tf.gather(self.targets, targets) * is_there, axis=-2)
        )


class HierarchicalHead(snt.Module):
    """A head that chooses the rule or NO-OP first (`num_xfers` is R + 1), then the location."""

    def __init__(
        self, num_xfers: int, num_locations: int, width: int, generator: np.random.Generator
    ) -> None:
        super().__init__(name="hierarchical")
        self.xfer_hidden = linear(generator, (width, width), "xfer_hidden")
        self.xfers = linear(generator, (width, num_xfers), "xfers", _OUTPUT_GAIN)
        self.location_hidden = linear(generator, (width, width), "location_hidden")
        self.location_xfers = tf.Variable(
            generator.normal(scale=0.1, size=(num_xfers, width)).astype("f"), name="location_xfers"
        )
        self.locations = linear(generator, (width, num_locations), "locations", _OUTPUT_GAIN)

    def __call__(
        self, encoded: graphs.GraphsTuple, observation: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Return log-probabilities [B, A] of the listed actions, MASKED for rows that list none."""
        places = tf.where(observation["action_mask"])
        graph_of = tf.cast(places[:, 0], tf.int32)
        xfers, locations = tf.unstack(tf.gather_nd(observation["actions"], places), axis=1)
        # Each pair (graph, xfer) has a number of its own.
        sizes = tf.shape(encoded.globals)[0], self.xfers.output_size
        pairs = graph_of * sizes[1] + xfers
        num_pairs = sizes[0] * sizes[1]
        is_present = tf.math.unsorted_segment_sum(tf.ones_like(pairs), pairs, num_pairs) > 0
        logits = self.xfers(tf.nn.relu(self.xfer_hidden(encoded.globals)))
        logs = tf.nn.log_softmax(tf.where(tf.reshape(is_present, sizes), logits, MASKED))
        hidden = tf.gather(self.location_hidden(encoded.globals), graph_of)
        hidden = tf.nn.relu(hidden + tf.gather(self.location_xfers, xfers))
        weights = tf.gather(tf.transpose(self.locations.w), locations)
        scores = tf.reduce_sum(hidden * weights, axis=1) + tf.gather(self.locations.b, locations)
        scores = _log_shares(scores, pairs, num_pairs)
        return _listed(tf.gather(tf.reshape(logs, [-1]), pairs) + scores, places, observation)

    def numbered(self, encoded: graphs.GraphsTuple) -> tuple[tf.Tensor, tf.Tensor]:
        """Return logits of all rules [B, R + 1], and of all locations of each [B, R + 1, S]."""
        rules = self.xfers(tf.nn.relu(self.xfer_hidden(encoded.globals)))
        hidden = self.location_hidden(encoded.globals)[:, tf.newaxis] + self.location_xfers
        return rules, self.locations(tf.nn.relu(hidden))


def make_head(
    config: Any,
    observation_spec: Mapping[str, Any],
    action_spec: Any,
    generator: np.random.Generator,
) -> PointerHead | HierarchicalHead:
    """Make the head that `config.head`, one of `HEADS`, names."""
    width = config.graph_width
    if config.head == HIERARCHICAL:
        most = np.broadcast_to(action_spec.maximum, (2,)).tolist()
        return HierarchicalHead(most[0] + 1, most[1] + 1, width, generator)
    num_features = int(observation_spec["action_features"].shape[-1])
    num_kinds = Features.of(observation_spec).num_kinds
    has_globals = config.head == POINTER
    return PointerHead(num_kinds, num_features, width, config.max_logit, has_globals, generator)


def _mean_of_nodes(
    nodes: tf.Tensor, rows: tf.Tensor, graph_of: tf.Tensor, n_node: tf.Tensor
) -> tf.Tensor:
    """Return, for each of M actions, the mean vector of some nodes, [M, H]; 0 if there are none.

    Args:
      nodes: [N, H], the nodes of all graphs, numbered consecutively.
      rows: int32 [M, K], row numbers within each action's own graph; rows of padding do not count.
      graph_of: [M], the number of each action's graph.
      n_node: [B], the number of nodes of each graph.
    """
    is_node = rows < tf.gather(n_node, graph_of)[:, tf.newaxis]
    there = tf.where(is_node)
    rows += tf.gather(first_nodes(n_node), graph_of)[:, tf.newaxis]
    sums = sorted_sum(tf.gather(nodes, tf.gather_nd(rows, there)), there[:, 0], tf.shape(rows)[0])
    counts = tf.reduce_sum(tf.cast(is_node, tf.float32), axis=1, keepdims=True)
    return sums / tf.maximum(counts, 1.0)


def _log_shares(scores: tf.Tensor, segments: tf.Tensor, num_segments: tf.Tensor) -> tf.Tensor:
    """Return the logarithms of the softmax of scores [M] within each segment, [M]."""
    most = tf.stop_gradient(tf.math.unsorted_segment_max(scores, segments, num_segments))
    scores -= tf.gather(most, segments)
    sums = tf.math.unsorted_segment_sum(tf.exp(scores), segments, num_segments)
    return scores - tf.math.log(tf.gather(sums, segments))


def _listed(
    scores: tf.Tensor, places: tf.Tensor, observation: Mapping[str, tf.Tensor]
) -> tf.Tensor:
    """Put scores [M] at their places in [B, A], with MASKED everywhere else."""
    shape = tf.shape(observation["action_mask"])
    return tf.tensor_scatter_nd_update(tf.fill(shape, MASKED), places, scores)
