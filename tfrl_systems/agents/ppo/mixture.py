"""PPO with several answers to each observation, of which the policy takes the most promising."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from tfrl_systems.agents import policy_gradients
from tfrl_systems.agents.ppo.agent import Learned, PPOAgent, log_sizes


class _Shared(NamedTuple):
    """What the judge of components learns.

    Attributes:
      returns: returns [1, N].
      shares: how likely each action was drawn from each component, [1, N, K]; they add up to 1.
    """

    returns: tf.Tensor
    shares: tf.Tensor


class MixtureAgent(PPOAgent):
    """A PPO agent whose policy is a mixture (`networks.mixture`).

    With the share h_k(a) of component k in an action, the advantage and the loss of the judge are

        Â = (R̂ - Σ_k h_k Q_k) / exp(Σ_k h_k log d_k),
        L = Σ_k h_k [(R̂ - Q_k)² + (log d_k - log |R̂ - Q_k|)²].

    So each component is compared with what it returned before, and not with the others. The weights
    are the judge's, and no gradient of the policy reaches them.
    """

    def _learned(self, steps: trajectory.Trajectory) -> Learned:
        learned, info = super()._learned(steps), steps.policy_info
        shares = self._drawn_from(info).responsibilities(steps.action)
        values, log_spreads = self.value_network.of_components(steps.observation)
        advantages = info["return"] - tf.reduce_sum(shares * values, axis=-1)
        if self._config.relative_advantages:
            advantages *= tf.exp(-tf.reduce_sum(shares * log_spreads, axis=-1))
        return learned._replace(
            returns=_Shared(info["return"], shares),
            advantages=policy_gradients.normalised(advantages),
        )

    def value_estimation_loss(
        self, time_steps: ts.TimeStep, returns: _Shared, *args: Any, **kwargs: Any
    ) -> tf.Tensor:
        """Return the judge's loss: that of each component, by its shares in the actions."""
        values, log_spreads = self.value_network.of_components(time_steps.observation)
        errors = returns.returns[..., tf.newaxis] - values
        losses = errors**2 + (log_spreads - log_sizes(errors)) ** 2
        of_steps = tf.reduce_sum(returns.shares * losses, axis=-1)
        return self._config.value_weight * tf.reduce_mean(of_steps)
