"""A distribution over pairs (rule, place); each rule has a number of places, counted from 0.

    p(rule, place) = p(rule) p(place | rule)

A rule cuts the logits of places off after its last place:

    p(rule) ∝ exp a_rule  if it has a place,      p(place | rule) ∝ exp b_place  for place < n_rule

All rules may share the logits b, so that three short vectors are enough for any number of pairs. Or
each rule has its own, as in the thesis (3.2.3), where the location depends on the rule. A policy
that sees no list of matches acts with this distribution.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

from tfrl_systems.networks.graph_actions import MASKED

MAX_PLACE_LOGIT = 8.0
"""Bound of the logits of places, without which the sums over the first few places could vanish."""


class NumberedActions(tfp.distributions.Distribution):
    """The distribution of this module's docstring.

    If no rule has a place, the rules are equally likely, and the place is 0.

    Args:
      rule_logits: float32 [..., R], MASKED for rules without a place.
      place_logits: float32 [..., S], between ±MAX_PLACE_LOGIT; or [..., R, S], each rule's own.
      num_places: int32 [..., R], the number of places of each rule, at most S.
      validate_args, allow_nan_stats, name: required by TFP.
    """

    def __init__(
        self,
        rule_logits: tf.Tensor,
        place_logits: tf.Tensor,
        num_places: tf.Tensor,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "NumberedActions",
    ) -> None:
        parameters = dict(locals())
        self.rule_logits = tf.convert_to_tensor(rule_logits)
        self.place_logits = tf.convert_to_tensor(place_logits)
        self.num_places = tf.convert_to_tensor(num_places)
        super().__init__(
            dtype=tf.int32,
            reparameterization_type=tfp.distributions.NOT_REPARAMETERIZED,
            validate_args=validate_args,
            allow_nan_stats=allow_nan_stats,
            parameters=parameters,
            name=name,
        )

    @classmethod
    def of(cls, outputs: tf.Tensor, num_places: tf.Tensor) -> NumberedActions:
        """Make the distribution from a network's outputs [..., R + S] and places [..., R]."""
        num_rules = num_places.shape[-1]
        rule_logits = tf.where(num_places > 0, outputs[..., :num_rules], MASKED)
        place_logits = MAX_PLACE_LOGIT * tf.tanh(outputs[..., num_rules:] / MAX_PLACE_LOGIT)
        return cls(rule_logits, place_logits, num_places)

    @classmethod
    def _parameter_properties(cls, dtype: Any, num_classes: Any = None) -> dict[str, Any]:
        vector = tfp.util.ParameterProperties(event_ndims=1)
        places = tfp.util.ParameterProperties(event_ndims=lambda self: 1 + self.has_own_places)
        return {"rule_logits": vector, "place_logits": places, "num_places": vector}

    @property
    def has_own_places(self) -> bool:
        """Whether each rule has its own logits of places."""
        return bool(self.place_logits.shape.rank > self.num_places.shape.rank)

    def rule_log_prob(self, action: tf.Tensor) -> tf.Tensor:
        """Return the log-probability of each action's rule alone."""
        rules = action[..., 0]
        return tf.gather(tf.nn.log_softmax(self.rule_logits), rules, batch_dims=rules.shape.rank)

    def _logits_of(self, rules: tf.Tensor) -> tf.Tensor:
        """Return the logits of the places [..., S] of rules [...], of which none is cut off."""
        if not self.has_own_places:
            return self.place_logits
        return tf.gather(self.place_logits, rules, batch_dims=rules.shape.rank)

    def _event_shape(self) -> tf.TensorShape:
        return tf.TensorShape([2])

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.constant([2])

    def _sample_n(self, n: int, seed: Any = None) -> tf.Tensor:
        num_rules, num_slots = self.num_places.shape[-1], self.place_logits.shape[-1]
        outer_shape = tf.shape(self.rule_logits)[:-1]
        seeds = tfp.random.split_seed(seed)
        rules = tf.random.stateless_categorical(
            tf.reshape(self.rule_logits, [-1, num_rules]), n, seeds[0], tf.int32
        )
        counts = tf.gather(tf.reshape(self.num_places, [-1, num_rules]), rules, batch_dims=1)
        # The place is the one with the greatest sum of logit and Gumbel noise.
        shape = tf.concat([tf.shape(rules), [num_slots]], axis=0)
        uniform = tf.random.stateless_uniform(shape, seeds[1], 1e-20, 1.0)
        if self.has_own_places:
            own = tf.reshape(self.place_logits, [-1, num_rules, num_slots])
            logits = tf.gather(own, rules, batch_dims=1)
        else:
            logits = tf.reshape(self.place_logits, [-1, 1, num_slots])
        logits -= tf.math.log(-tf.math.log(uniform))
        places = tf.argmax(_cut_off(logits, counts), axis=-1, output_type=tf.int32)
        drawn = tf.stack([rules, places], axis=-1)
        return tf.reshape(
            tf.transpose(drawn, [1, 0, 2]), tf.concat([[n], outer_shape, [2]], axis=0)
        )

    def _log_prob(self, action: tf.Tensor) -> tf.Tensor:
        rules, places = tf.unstack(action, axis=-1)
        rank = rules.shape.rank
        counts = tf.gather(self.num_places, rules, batch_dims=rank)
        logits = _cut_off(self._logits_of(rules), counts)
        log_probabilities = self.rule_log_prob(action)
        log_probabilities += tf.gather(tf.nn.log_softmax(logits), places, batch_dims=rank)
        return tf.where(places < tf.maximum(counts, 1), log_probabilities, MASKED)

    def _entropy(self) -> tf.Tensor:
        logs = tf.nn.log_softmax(self.rule_logits)
        shares = tf.exp(logs)
        # 0 log 0 is 0, and so is its gradient.
        of_rules = -tf.reduce_sum(shares * tf.where(shares > 0, logs, 0.0), axis=-1)
        # The entropy of the first n places, for each n at once: log Z - (Σ b exp b) / Z.
        logits = self.place_logits - tf.reduce_max(self.place_logits, axis=-1, keepdims=True)
        weights = tf.exp(logits)
        totals = tf.cumsum(weights, axis=-1)
        of_first = tf.math.log(totals) - tf.cumsum(weights * logits, axis=-1) / totals
        last = tf.maximum(self.num_places, 1) - 1
        if self.has_own_places:
            of_places = tf.gather(of_first, last, batch_dims=last.shape.rank)
        else:
            of_places = tf.gather(of_first, last, batch_dims=last.shape.rank - 1)
        return of_rules + tf.reduce_sum(shares * of_places, axis=-1)

    def _mode(self) -> tf.Tensor:
        rules = tf.argmax(self.rule_logits, axis=-1, output_type=tf.int32)
        counts = tf.gather(self.num_places, rules, batch_dims=rules.shape.rank)
        logits = _cut_off(self._logits_of(rules), counts)
        places = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return tf.stack([rules, places], axis=-1)


def _cut_off(logits: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Mask the logits [..., S] of places from `counts` [...] on; place 0 always stays."""
    is_place = tf.range(logits.shape[-1]) < tf.maximum(counts, 1)[..., tf.newaxis]
    return tf.where(is_place, logits, MASKED)
