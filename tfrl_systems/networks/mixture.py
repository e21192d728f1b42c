"""Actors with several answers to an observation, and a judge that says which is best.

A perceptron is continuous. Where the best action jumps, because one valley becomes deeper than
another, it is drawn along between them, and which valleys it knows depends on the seed. So there
are K means, and a second perceptron, the judge, learns what actions around each of them return:

    π(a | s) = Σ_k w_k(s) N(a; μ_k(s), σ²),    w = (1 - ε) softmax(Q(s) / d(s)) + ε / K

Q_k is the expected return of component k; d is how far returns usually lie from the greatest Q. ε
falls from 1 to 0 while the policy searches. So all components look for valleys at first; later each
learns where it is among the best, and need not be good elsewhere.

It is a mixture of experts (R. Jacobs et al.: Adaptive Mixtures of Local Experts, 1991) but for the
weights. Weights that the policy gradient learns settle on one component for all s, long before the
others are down in their valleys; values are learned of each component by itself.

`policies/numpy_mixture.py` does the same arithmetic in NumPy.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.networks import network
from tf_agents.specs import tensor_spec

from environments.errors import UserError
from tfrl_systems.networks import actors
from tfrl_systems.networks.array_function import ArrayFunction
from tfrl_systems.networks.distributions import Mixture

# The first means of the components lie within this share of half the range around its middle.
_FIRST_REACH = 0.6
_ANSWERS, _JUDGE, _EVEN_SHARE = "answers/", "judge/", "even_share"


class MixtureNetwork(actors.Actor):
    """An actor network with K answers to each observation; see the module.

    Args:
      observation_spec: a nest of numbers.
      action_spec: a bounded float32 vector.
      config: settings of networks (`agents.policy_gradients.NetworkConfig`).
      generator: draws the initial weights.
      state_dependent_std: as for `ActorNetwork`.
      num_components: K, 2 or more.

    Raises:
      UserError: a spec is of another kind.
    """

    def __init__(
        self,
        observation_spec: Any,
        action_spec: Any,
        config: Any,
        generator: np.random.Generator,
        state_dependent_std: bool,
        num_components: int,
    ) -> None:
        super().__init__(input_tensor_spec=observation_spec, state_spec=(), name="mixture")
        self._actions = actors.read_action_spec(action_spec)
        if self._actions.kind != "normal":
            raise UserError(
                f"components: expected 1 for other actions than float vectors, found "
                f"{num_components}; leave it out"
            )
        self._num_components = num_components
        low, high = (bound * num_components for bound in (self._actions.low, self._actions.high))
        many = tensor_spec.BoundedTensorSpec([len(low)], tf.float32, low, high)
        self._answers = actors.ActorNetwork(
            observation_spec, many, config, generator, state_dependent_std
        )
        # For each component its value, and the logarithm of returns' usual distance from it.
        self._judge = actors.Perceptron(
            observation_spec, config, 2 * num_components, generator, "judge"
        )
        reach = generator.uniform(-_FIRST_REACH, _FIRST_REACH, len(low)).astype(np.float32)
        self._answers.set_first_actions(reach)
        self._even_share = tf.Variable(1.0, trainable=False, name="mixture/even_share")
        self._set_even_share_fn = ArrayFunction(self._even_share.assign)

    def call(
        self, observation: Any, step_type: Any = (), network_state: Any = (), training: bool = False
    ) -> tuple[Mixture, Any]:
        """Return the mixture and no state; observations [B, ...] or [B, T, ...]."""
        answers, _ = self._answers(observation)
        log_weights, _, _ = self.judged(observation)
        loc, scale_diag = (
            tf.reshape(array, tf.concat([tf.shape(log_weights), [self._actions.size]], axis=0))
            for array in (answers.loc, answers.scale.diag)
        )
        return Mixture(logits=log_weights, loc=loc, scale_diag=scale_diag), network_state

    def judged(self, observation: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return log w_k, Q_k, and logarithms of the usual |return - Q_k|, each [..., K]."""
        values, log_spreads = tf.split(self._judge(observation)[0], 2, axis=-1)
        best = tf.argmax(values, axis=-1, output_type=tf.int32)[..., tf.newaxis]
        spread = tf.exp(tf.gather(log_spreads, best, batch_dims=best.shape.rank - 1))
        shares = tf.nn.softmax(values / spread)
        even = self._even_share / self._num_components
        # Where ε is 0 a weight may vanish; its logarithm must not.
        weights = tf.maximum((1 - self._even_share) * shares + even, 1e-30)
        return tf.stop_gradient(tf.math.log(weights)), values, log_spreads

    def create_variables(self, *args: Any, **kwargs: Any) -> Any:
        """Create the variables of all parts."""
        self._answers.create_variables()
        self._judge.create_variables()
        return super().create_variables(*args, **kwargs)

    def make_value(
        self,
        config: Any,
        generator: np.random.Generator,
        has_spread: bool,
        two_policies: bool = False,
    ) -> network.Network:
        """Make the judge's value network, which owns no variables; arguments are not used."""
        return MixtureValue(self)

    def set_std(self, share: float) -> None:
        """See `Actor.set_std`."""
        self._answers.set_std(share)

    def set_even_share(self, share: float) -> None:
        """See `Actor.set_even_share`."""
        self._set_even_share_fn(np.float32(share))

    def describe(self) -> dict[str, Any]:
        """See `Actor.describe`."""
        answers = self._answers.describe()
        outputs = {"kind": "categorical", "size": 2 * self._num_components, "low": [], "high": []}
        return {
            "kind": "mixture",
            "actions": dataclasses.asdict(self._actions),
            "components": self._num_components,
            "answers": answers,
            "judge": {**answers, "actions": outputs, "state_dependent_std": False},
        }

    def named_variables(self) -> dict[str, tf.Variable]:
        """Return those of the answers, of the judge, and even_share."""
        parts = {_ANSWERS: self._answers.named_variables(), _JUDGE: self._judge.named_layers()}
        named = {part + name: own for part, all_ in parts.items() for name, own in all_.items()}
        return {**named, _EVEN_SHARE: self._even_share}


class MixtureValue(network.Network):
    """The value network of a mixture's judge, V(s) = Σ_k w_k(s) Q_k(s); it owns no variables."""

    def __init__(self, actor: MixtureNetwork) -> None:
        super().__init__(input_tensor_spec=actor.input_tensor_spec, state_spec=(), name="value")
        # A bound method: variables of what an attribute holds would be trained twice.
        self._judged_fn = actor.judged

    def call(
        self, observation: Any, step_type: Any = (), network_state: Any = (), training: bool = False
    ) -> tuple[tf.Tensor, Any]:
        """Return values [B] or [B, T], and no state."""
        return self.value_and_log_spread(observation)[0], network_state

    def value_and_log_spread(
        self, observation: Any, step_type: Any = (), training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return means over components of `of_components`, each [B] or [B, T]."""
        log_weights, values, log_spreads = self._judged_fn(observation)
        weights = tf.exp(log_weights)
        mean_value = tf.reduce_sum(weights * values, axis=-1)
        return mean_value, tf.reduce_sum(weights * log_spreads, axis=-1)

    def of_components(self, observation: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return Q_k, and logarithms of the usual |return - Q_k|, each [..., K]."""
        _, values, log_spreads = self._judged_fn(observation)
        return values, log_spreads
