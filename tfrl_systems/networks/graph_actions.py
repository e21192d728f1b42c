"""A distribution over listed actions, some of which may be masked.

It is categorical, but its outcomes are the rows of a list in the observation. Its parameters are
tensors of a fixed size, so TF-Agents can store them with the experience and rebuild it from them.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

MASKED = -1e9
"""The logit of a masked action: its probability is exactly 0, and so is its gradient."""


class ListedActions(tfp.distributions.Distribution):
    """A categorical distribution over the rows of a list of actions.

    If an action is listed twice, only its first row counts: mask the others. If all rows are
    masked, all are equally likely.

    Args:
      logits: float32 [..., A], MASKED for rows that are not allowed.
      actions: int32 [..., A, n], the listed actions.
      validate_args, allow_nan_stats, name: required by TFP.
    """

    def __init__(
        self,
        logits: tf.Tensor,
        actions: tf.Tensor,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "ListedActions",
    ) -> None:
        parameters = dict(locals())
        self.logits = tf.convert_to_tensor(logits)
        self.actions = tf.convert_to_tensor(actions)
        super().__init__(
            dtype=self.actions.dtype,
            reparameterization_type=tfp.distributions.NOT_REPARAMETERIZED,
            validate_args=validate_args,
            allow_nan_stats=allow_nan_stats,
            parameters=parameters,
            name=name,
        )

    @classmethod
    def _parameter_properties(cls, dtype: Any, num_classes: Any = None) -> dict[str, Any]:
        return {
            "logits": tfp.util.ParameterProperties(event_ndims=1),
            "actions": tfp.util.ParameterProperties(event_ndims=2),
        }

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
