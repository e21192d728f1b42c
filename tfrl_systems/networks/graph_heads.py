"""From vectors of graphs to logits of what may be done with them.

An action is one match of one rule: (xfer_id, location), or NO-OP. The observation lists those that
are allowed; heads give each of them a logit, and nothing else gets one. Three heads:

PointerHead scores each match by what it touches, whatever its number is:

    score = v · relu(T h_root + P mean_touched h + Q mean_inputs h + F f + r + G g),
    logit = C tanh(score / C)

    f: of the match, what it changes at once; r: of its rule

where the root is the first node that the match replaces. C bounds how sure the head can become
(I. Bello et al.: Neural combinatorial optimization with reinforcement learning, 2016); without it
the logit is the score. Of a rule it knows what `rule_ids` and `rule_targets` say, so the same
weights serve another set of rules. NO-OP touches nothing: its score comes from the global vector g
and its own r.

LocalHead is the same without g, behind an encoder whose nodes hear nothing of g either: a match is
judged by what is near it, in whatever model it is. What only tells models apart, such as how many
nodes there are, cannot be learned by heart.

HierarchicalHead is the thesis's (3.2.3): from g alone first the rule, then the location given the
rule, each by its number,

    p(xfer, location) = p(xfer) p(location | xfer),

so its logits are already logarithms of probabilities.

`policies/numpy_graph.py` has the same arithmetic in NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf
from graph_nets import graphs

from tfrl_systems.networks.graph_actions import MASKED
from tfrl_systems.networks.graph_encoder import first_nodes, linear, sorted_sum

HASH_SIZE = 256
"""A rule's vector is the sum of two, of so many each, by two parts of its number: rules share one
of them by chance, but hardly both (D. Svenstrup et al.: Hash embeddings, 2017)."""

# Small first scores: the first policy is nearly uniform.
_OUTPUT_GAIN = 0.01


class PointerHead(snt.Module):
    """Scores matches by the nodes that they touch.

    Args:
      num_kinds: of nodes.
      num_features: of a match.
      width: H.
      max_logit: C, the bound of logits; 0 for none.
      generator: draws the initial weights.
    """

    kind = "pointer"
    has_globals = True

    def __init__(
        self,
        num_kinds: int,
        num_features: int,
        width: int,
        max_logit: float,
        generator: np.random.Generator,
    ) -> None:
        super().__init__(name="pointer")
        self._max_logit = max_logit
        self.matches = linear(generator, (num_features, width), "matches", has_bias=False)
        self.nodes = linear(generator, (width, 3 * width), "nodes", has_bias=False)
        if self.has_globals:
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
        """Logits [B, A] of the listed actions, MASKED where there is none."""
        places = tf.where(observation["action_mask"])
        graph_of = places[:, 0]
        parts = tf.split(self.nodes(encoded.nodes), 3, axis=1)
        touched = tf.gather_nd(observation["action_nodes"], places)
        xfers = tf.gather_nd(observation["actions"], places)[:, 0]
        numbers = tf.stack([tf.cast(graph_of, tf.int32), xfers], axis=1)
        hidden = tf.gather_nd(self._rules(observation), numbers)
        hidden += self.matches(tf.gather_nd(observation["action_features"], places))
        if self.has_globals:
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
        """The vectors of all rules and of NO-OP, [B, R + 1, H]."""
        ids, targets = observation["rule_ids"], observation["rule_targets"]
        is_there = tf.cast(targets > 0, tf.float32)[..., tf.newaxis]
        return (
            tf.gather(self.first_hash, ids % HASH_SIZE)
            + tf.gather(self.second_hash, ids // HASH_SIZE % HASH_SIZE)
            + tf.reduce_sum(tf.gather(self.targets, targets) * is_there, axis=-2)
        )


class LocalHead(PointerHead):
    """A pointer that knows nothing of the whole graph."""

    kind = "local"
    has_globals = False


class HierarchicalHead(snt.Module):
    """First the rule, then the location.

    Args:
      num_xfers: R + 1.
      num_locations: S.
      width: H.
      generator: draws the initial weights.
    """

    kind = "hierarchical"

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
        """Log-probabilities [B, A] of the listed actions, MASKED where there is none."""
        places = tf.where(observation["action_mask"])
        graph_of = tf.cast(places[:, 0], tf.int32)
        xfers, locations = tf.unstack(tf.gather_nd(observation["actions"], places), axis=1)
        # Numbers of the pairs (graph, xfer).
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


def make_head(
    name: str,
    observation_spec: Mapping[str, Any],
    action_spec: Any,
    width: int,
    max_logit: float,
    generator: np.random.Generator,
) -> PointerHead | HierarchicalHead:
    """The head of that name.

    Args:
      name: "pointer", "local" or "hierarchical".
      observation_spec: of listed actions.
      action_spec: (xfer_id, location).
      width: H.
      max_logit: C, of a PointerHead or LocalHead.
      generator: draws the initial weights.
    """
    if name == HierarchicalHead.kind:
        most = np.broadcast_to(action_spec.maximum, (2,)).tolist()
        return HierarchicalHead(most[0] + 1, most[1] + 1, width, generator)
    pointer = LocalHead if name == LocalHead.kind else PointerHead
    num_features = int(observation_spec["action_features"].shape[-1])
    return pointer(num_kinds(observation_spec), num_features, width, max_logit, generator)


def num_kinds(observation_spec: Mapping[str, Any]) -> int:
    """How many kinds of nodes there are."""
    return int(np.max(observation_spec["rule_targets"].maximum)) + 1


def _mean_of_nodes(
    nodes: tf.Tensor, rows: tf.Tensor, graph_of: tf.Tensor, n_node: tf.Tensor
) -> tf.Tensor:
    """For each action the mean of some nodes, 0 of none.

    Args:
      nodes: [N, H], rows counted through.
      rows: int32 [M, K] in each action's own graph; those of padding count for nothing.
      graph_of: [M], the number of each action's graph.
      n_node: of the graphs, [B].
    """
    is_node = rows < tf.gather(n_node, graph_of)[:, tf.newaxis]
    there = tf.where(is_node)
    rows += tf.gather(first_nodes(n_node), graph_of)[:, tf.newaxis]
    sums = sorted_sum(tf.gather(nodes, tf.gather_nd(rows, there)), there[:, 0], tf.shape(rows)[0])
    counts = tf.reduce_sum(tf.cast(is_node, tf.float32), axis=1, keepdims=True)
    return sums / tf.maximum(counts, 1.0)


def _log_shares(scores: tf.Tensor, segments: tf.Tensor, num_segments: tf.Tensor) -> tf.Tensor:
    """Logarithms of the softmax within each segment, [M]."""
    most = tf.stop_gradient(tf.math.unsorted_segment_max(scores, segments, num_segments))
    scores -= tf.gather(most, segments)
    sums = tf.math.unsorted_segment_sum(tf.exp(scores), segments, num_segments)
    return scores - tf.math.log(tf.gather(sums, segments))


def _listed(
    scores: tf.Tensor, places: tf.Tensor, observation: Mapping[str, tf.Tensor]
) -> tf.Tensor:
    """Scores [M] at their places in [B, A], MASKED elsewhere."""
    shape = tf.shape(observation["action_mask"])
    return tf.tensor_scatter_nd_update(tf.fill(shape, MASKED), places, scores)
