"""Distributions over actions, made from tensors alone.

TF-Agents stores a distribution's tensors with the experience, and makes it from them again.

    ListedActions     categorical, but its outcomes are the rows of a list in the observation
    NumberedActions   pairs (rule, place); each rule has a number of places, counted from 0
    Mixture           of normal distributions

`policies/distributions.py` has the same in NumPy.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import tensorflow as tf
import tensorflow_probability as tfp

MASKED = -1e9
"""The logit of a masked action: its probability is exactly 0, and so is its gradient."""

MAX_PLACE_LOGIT = 8.0
"""Bound of the logits of places, without which the sums over the first few places could vanish."""


class FromTensors(tfp.distributions.Distribution):
    """A distribution whose parameters are tensors; they become its attributes.

    `EVENT_NDIMS` has for each of them how many of its axes belong to one event, in TFP's terms. The
    arguments beside the tensors are required by TFP.
    """

    EVENT_NDIMS: ClassVar[dict[str, Any]]
    DTYPE: ClassVar[tf.DType] = tf.int32

    def __init__(
        self,
        *,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str | None = None,
        **tensors: Any,
    ) -> None:
        parameters = {key: tf.convert_to_tensor(tensors[key]) for key in self.EVENT_NDIMS}
        for key, tensor in parameters.items():
            setattr(self, key, tensor)
        settings = {"validate_args": validate_args, "allow_nan_stats": allow_nan_stats}
        super().__init__(
            dtype=self.DTYPE,
            reparameterization_type=tfp.distributions.NOT_REPARAMETERIZED,
            parameters={**parameters, **settings, "name": name},
            # TFP makes the seeds of draws from the name, too.
            name=name or type(self).__name__,
            **settings,
        )

    @classmethod
    def _parameter_properties(cls, dtype: Any, num_classes: Any = None) -> dict[str, Any]:
        return {
            name: tfp.util.ParameterProperties(event_ndims=event_ndims)
            for name, event_ndims in cls.EVENT_NDIMS.items()
        }


class ListedActions(FromTensors):
    """A categorical distribution over the rows of a list of actions.

    If an action is listed twice, only its first row counts: mask the others. If all rows are
    masked, all are equally likely.

    Attributes:
      logits: float32 [..., A], MASKED for rows that are not allowed.
      actions: int32 [..., A, n], the listed actions.
    """

    EVENT_NDIMS: ClassVar = {"logits": 1, "actions": 2}
    logits: tf.Tensor
    actions: tf.Tensor

    def _event_shape(self) -> tf.TensorShape:
        return self.actions.shape[-1:]

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.shape(self.actions)[-1:]

    def _sample_n(self, n: int, seed: Any = None) -> tf.Tensor:
        num_actions = tf.shape(self.logits)[-1]
        outer_shape = tf.shape(self.logits)[:-1]
        drawn = tf.random.stateless_categorical(
            tf.reshape(self.logits, [-1, num_actions]), n, tfp.random.sanitize_seed(seed), tf.int32
        )
        places = tf.reshape(tf.transpose(drawn), tf.concat([[n], outer_shape], axis=0))
        shape = tf.concat([[n], tf.shape(self.actions)], axis=0)
        return self._at(places, tf.broadcast_to(self.actions, shape))

    def _log_prob(self, action: tf.Tensor) -> tf.Tensor:
        is_action = tf.reduce_all(tf.equal(self.actions, action[..., tf.newaxis, :]), axis=-1)
        places = tf.argmax(is_action, axis=-1, output_type=tf.int32)
        logs = tf.nn.log_softmax(self.logits)
        log_probabilities = tf.gather(
            tf.broadcast_to(logs, tf.shape(is_action)), places, batch_dims=places.shape.rank
        )
        return tf.where(tf.reduce_any(is_action, axis=-1), log_probabilities, MASKED)

    def rule_log_prob(self, action: tf.Tensor) -> tf.Tensor:
        """Return the log-probability that an action begins like each of `action`: of its rule."""
        is_same = tf.equal(self.actions[..., 0], action[..., tf.newaxis, 0])
        logs = tf.where(is_same, tf.nn.log_softmax(self.logits), MASKED)
        return tf.reduce_logsumexp(logs, axis=-1)

    def _entropy(self) -> tf.Tensor:
        logs = tf.nn.log_softmax(self.logits)
        shares = tf.exp(logs)
        # 0 log 0 is 0, and so is its gradient.
        return -tf.reduce_sum(shares * tf.where(shares > 0, logs, 0.0), axis=-1)

    def _mode(self) -> tf.Tensor:
        places = tf.argmax(self.logits, axis=-1, output_type=tf.int32)
        return self._at(places, self.actions)

    def _at(self, places: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        return tf.gather(actions, places, axis=places.shape.rank, batch_dims=places.shape.rank)


class NumberedActions(FromTensors):
    """A distribution over pairs (rule, place), in which no rule has a place after its last one.

        p(rule, place)  = p(rule) p(place | rule)
        p(rule)         ∝ exp a_rule     if it has a place
        p(place | rule) ∝ exp b_place    for place < n_rule

    All rules may share the logits b, so that three short vectors are enough for any number of
    pairs. Or each rule has its own, as in the thesis (3.2.3), where the location depends on the
    rule. If no rule has a place, the rules are equally likely, and the place is 0.

    Attributes:
      rule_logits: float32 [..., R], MASKED for rules without a place.
      place_logits: float32 [..., S], between ±MAX_PLACE_LOGIT; or [..., R, S], each rule's own.
      num_places: int32 [..., R], the number of places of each rule, at most S.
    """

    EVENT_NDIMS: ClassVar = {
        "rule_logits": 1,
        "place_logits": lambda self: 1 + self.has_own_places,
        "num_places": 1,
    }
    rule_logits: tf.Tensor
    place_logits: tf.Tensor
    num_places: tf.Tensor

    @classmethod
    def of(cls, outputs: tf.Tensor, num_places: tf.Tensor) -> NumberedActions:
        """Make the distribution from a network's outputs [..., R + S] and places [..., R]."""
        num_rules = num_places.shape[-1]
        rule_logits = tf.where(num_places > 0, outputs[..., :num_rules], MASKED)
        place_logits = MAX_PLACE_LOGIT * tf.tanh(outputs[..., num_rules:] / MAX_PLACE_LOGIT)
        return cls(rule_logits=rule_logits, place_logits=place_logits, num_places=num_places)

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


class Mixture(FromTensors):
    """A mixture of normal distributions with independent components of the action.

    Attributes:
      logits: float32 [..., K], of the components.
      loc: float32 [..., K, n], their means.
      scale_diag: float32 [..., K, n], their standard deviations.
    """

    EVENT_NDIMS: ClassVar = {"logits": 1, "loc": 2, "scale_diag": 2}
    DTYPE: ClassVar = tf.float32
    logits: tf.Tensor
    loc: tf.Tensor
    scale_diag: tf.Tensor

    def responsibilities(self, action: tf.Tensor) -> tf.Tensor:
        """Return how likely each action [..., n] was drawn from each component, [..., K]."""
        return tf.nn.softmax(self._joint_log_prob(action))

    def _joint_log_prob(self, action: tf.Tensor) -> tf.Tensor:
        """Return log w_k N(a; μ_k, σ_k²), [..., K]."""
        distance = (action[..., tf.newaxis, :] - self.loc) / self.scale_diag
        own = -0.5 * distance**2 - tf.math.log(self.scale_diag) - 0.5 * math.log(2 * math.pi)
        return tf.nn.log_softmax(self.logits) + tf.reduce_sum(own, axis=-1)

    def _event_shape(self) -> tf.TensorShape:
        return self.loc.shape[-1:]

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.shape(self.loc)[-1:]

    def _sample_n(self, n: int, seed: Any = None) -> tf.Tensor:
        seeds = tfp.random.split_seed(seed)
        num_components, size = self.loc.shape[-2:]
        outer_shape = tf.shape(self.logits)[:-1]
        rows = tf.reshape(self.logits, [-1, num_components])
        chosen = tf.random.stateless_categorical(rows, n, seeds[0], tf.int32)
        loc, scale = (
            tf.gather(tf.reshape(array, [-1, num_components, size]), chosen, batch_dims=1)
            for array in (self.loc, self.scale_diag)
        )
        drawn = loc + scale * tf.random.stateless_normal(tf.shape(loc), seeds[1])
        shape = tf.concat([[n], outer_shape, [size]], axis=0)
        return tf.reshape(tf.transpose(drawn, [1, 0, 2]), shape)

    def _log_prob(self, action: tf.Tensor) -> tf.Tensor:
        return tf.reduce_logsumexp(self._joint_log_prob(action), axis=-1)

    def _entropy(self) -> tf.Tensor:
        """Return the entropy of component and action; the action's own where means lie apart."""
        logs = tf.nn.log_softmax(self.logits)
        own = tf.reduce_sum(tf.math.log(self.scale_diag), axis=-1)
        own += self.loc.shape[-1] * 0.5 * math.log(2 * math.pi * math.e)
        return tf.reduce_sum(tf.exp(logs) * (own - logs), axis=-1)

    def _mode(self) -> tf.Tensor:
        """Return the mean of the likeliest component."""
        best = tf.argmax(self.logits, axis=-1, output_type=tf.int32)
        return tf.gather(self.loc, best, batch_dims=best.shape.rank)


def _cut_off(logits: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Mask the logits [..., S] of places from `counts` [...] on; place 0 always stays."""
    is_place = tf.range(logits.shape[-1]) < tf.maximum(counts, 1)[..., tf.newaxis]
    return tf.where(is_place, logits, MASKED)
