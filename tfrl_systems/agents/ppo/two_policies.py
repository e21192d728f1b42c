"""PPO with one policy for the rule of an action, and one for its location."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from tfrl_systems.agents import policy_gradients
from tfrl_systems.agents.ppo.agent import Learned, PPOAgent, relative_loss


class _Chosen(NamedTuple):
    """What value functions learn if there are two policies.

    Attributes:
      returns: the returns of both, [1, N, 2].
      rules: the rules that were chosen, [1, N].
    """

    returns: tf.Tensor
    rules: tf.Tensor


class TwoPolicyAgent(PPOAgent):
    """A PPO agent with one policy for the rule x, and one for the location l given x.

    The thesis (3.2.3 and 3.3) says that both share a trunk, that each has a value network, and that
    two sets of results are collected. It does not say what the second policy is rewarded for, nor
    what its value network sees. Here both have the environment's rewards; the first value function
    is V(s), the second V(s, x):

        L = E [min(r_x Â_x, clip(r_x) Â_x) + min(r_l Â_l, clip(r_l) Â_l)],
        r_x = π(x | s) / π_k(x | s),    r_l = π(l | s, x) / π_k(l | s, x)
    """

    def _learned(self, steps: trajectory.Trajectory) -> Learned:
        learned, info = super()._learned(steps), steps.policy_info
        advantages = info["advantage"] * tf.exp(-info["log_spread"])
        return learned._replace(
            log_probabilities=_log_probabilities(self._drawn_from(info), steps.action),
            returns=_Chosen(info["return"], steps.action[..., 0]),
            advantages=tf.stack(
                [policy_gradients.normalised(advantages[..., k]) for k in range(2)], axis=-1
            ),
        )

    def policy_gradient_loss(
        self,
        time_steps: ts.TimeStep,
        actions: tf.Tensor,
        sample_action_log_probs: tf.Tensor,
        advantages: tf.Tensor,
        current_policy_distribution: Any,
        *args: Any,
        **kwargs: Any,
    ) -> tf.Tensor:
        """Return the sum of both policies' losses; all have a last axis of 2."""
        logs = _log_probabilities(current_policy_distribution, actions)
        ratios = tf.exp(logs - sample_action_log_probs)
        clip = self._config.clip
        clipped = tf.clip_by_value(ratios, 1 - clip, 1 + clip)
        self._clip_fraction = tf.reduce_mean(tf.cast(tf.abs(ratios - 1) > clip, tf.float32))
        objectives = tf.minimum(ratios * advantages, clipped * advantages)
        return -tf.reduce_mean(tf.reduce_sum(objectives, axis=-1))

    def value_estimation_loss(
        self, time_steps: ts.TimeStep, returns: _Chosen, *args: Any, **kwargs: Any
    ) -> tf.Tensor:
        """Return the sum of the losses of both value functions."""
        seen, losses = time_steps.observation, 0.0
        for k, (values, log_spread) in enumerate(self._both(seen, returns.rules, (), True)):
            own = returns.returns[..., k]
            if self._config.relative_advantages:
                losses += relative_loss(values, log_spread, own)
            else:
                losses += tf.reduce_mean((own - values) ** 2)
        return self._config.value_weight * losses

    def _both(
        self, observation: Any, rules: tf.Tensor, step_type: Any, training: bool
    ) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Return the values and log spreads of V(s) and of V(s, x)."""
        network = self.value_network
        return [
            network.value_and_log_spread(observation, step_type, training),
            network.of_locations(observation, rules, step_type, training),
        ]

    def _preprocess(self, experience: trajectory.Trajectory) -> trajectory.Trajectory:
        """Return steps [B, T + 1] with returns, advantages and log spreads [B, T + 1, 2]."""
        seen = experience.observation, experience.action[..., 0], experience.step_type
        _, _, next_time_steps = self._collected_as_transition(experience)
        columns: dict[str, list[tf.Tensor]] = {"return": [], "advantage": [], "log_spread": []}
        for values, log_spread in self._both(*seen, training=False):
            returns, advantages = self.compute_return_and_advantage(next_time_steps, values)
            for name, column in (("return", returns), ("advantage", advantages)):
                columns[name].append(tf.pad(column, [[0, 0], [0, 1]]))
            columns["log_spread"].append(log_spread)
        info = {name: tf.stack(column, axis=-1) for name, column in columns.items()}
        info["dist_params"] = experience.policy_info["dist_params"]
        return experience.replace(policy_info=info)


def _log_probabilities(distribution: Any, actions: tf.Tensor) -> tf.Tensor:
    """Return the log-probabilities [..., 2] of the rule, and of the location given the rule."""
    of_rules = distribution.rule_log_prob(actions)
    return tf.stack([of_rules, distribution.log_prob(actions) - of_rules], axis=-1)
