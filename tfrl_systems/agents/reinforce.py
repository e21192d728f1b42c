"""REINFORCE with a learned value function as its baseline.

R. J. Williams: Simple statistical gradient-following algorithms for connectionist reinforcement
learning (1992); the baseline as in R. S. Sutton, A. G. Barto: Reinforcement Learning, an
Introduction (2018), section 13.4:

    ∇J = E Σ_t ∇ log π(a_t | s_t) (G_t - V(s_t)),    G_t = r_t + γ d_t G_{t+1},

where the discount d_t is 0 at an episode's end, and E the mean over episodes. The book departs from
this by a factor γ^t, without which late steps count as much as early ones, and by a step after each
episode; here all episodes of an iteration, or some of them, share one step of Adam with the value
network. By default, G_t - V(s_t) is brought to mean 0 and variance 1 over an update's steps, so the
step size does not depend on the unit of rewards; `normalize_advantages` turns that off.

It is TF-Agents' `ReinforceAgent` with two differences. A step of training sees only the steps in
which an action was taken, whereas TF-Agents' means and variances count padding. And the episodes of
an iteration can be divided among several updates. With groups, advantages are those that the
experience brings along, and there is no value network.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf
import tree
from tf_agents.agents import tf_agent
from tf_agents.agents.reinforce import reinforce_agent
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from tfrl_systems.agents import policy_gradients
from tfrl_systems.networks.array_function import ArrayFunction

COLLECTS = "episodes"


@dataclasses.dataclass(frozen=True)
class Config(policy_gradients.Config):
    """Settings of a REINFORCE agent, beside those that policy gradient agents share.

    Attributes:
      entropy_regularization: weight of the policy's entropy, as its mean over steps. All else is a
        sum over an episode's steps, so it has to be as many times as great as PPO's as episodes
        have steps. Where most departures from a default lose, too little ends all of them alike,
        before those that pay are told apart.
      episodes_per_update: episodes that one step of Adam sees; 0 for all of an iteration. With
        graphs it bounds the memory: a step at a graph of a thousand nodes takes about 10 MB. From
        the second update of an iteration on, the policy differs a little from the one that
        collected.
      normalize_advantages: whether the advantages of an update are brought to mean 0 and variance
        1.
    """

    episodes_per_update: int = 0
    normalize_advantages: bool = True


def make_agent(
    config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec
) -> ReinforceAgent:
    """Make a REINFORCE agent (see `agents`)."""
    ranges = policy_gradients.at_least(config, 0, "episodes_per_update")
    policy_gradients.check("reinforce", config, ranges)
    return ReinforceAgent(config, *tensor_spec.from_spec((time_step_spec, action_spec)))


class ReinforceAgent(reinforce_agent.ReinforceAgent):
    """A REINFORCE agent; make it with `make_agent`, which checks the arguments.

    `train` takes a Trajectory [B, T] of whole episodes, padded with boundary steps. It learns
    nothing from an episode that is cut off. Given arrays it returns arrays, and given tensors
    tensors. The policy's variables are only the actor's, because only training needs the value
    network.

    Attributes:
      optimizer: the Adam optimizer.
      actor_network: the network of the policy.
    """

    def __init__(
        self, config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec
    ) -> None:
        self._config = config
        self.actor_network, value_network, self.optimizer = policy_gradients.make_parts(
            config, time_step_spec, action_spec
        )
        super().__init__(
            time_step_spec,
            action_spec,
            actor_network=self.actor_network,
            optimizer=self.optimizer,
            value_network=value_network if config.group == 1 else None,
            value_estimation_loss_coef=config.value_weight,
            # Advantages of groups take the place of rewards, and are not summed.
            gamma=config.gamma if config.group == 1 else 0.0,
            normalize_returns=config.normalize_advantages,
            entropy_regularization=config.entropy_regularization or None,
            train_step_counter=tf.Variable(0, dtype=tf.int64, trainable=False, name="train_step"),
        )
        # The longest episode is of another length in each iteration.
        self._train_fn = ArrayFunction(self._train, open_axes=2)

    def _train(self, experience: trajectory.Trajectory, weights: None = None) -> tf_agent.LossInfo:
        if self._config.group > 1:
            advantages = policy_gradients.advantages_of_groups(self._config, experience)
            experience = experience._replace(reward=advantages)
        size = self._config.episodes_per_update
        train = super()._train
        if not size:
            return train(experience)

        def update(start: tf.Tensor, _: Any) -> tuple[tf.Tensor, Any]:
            episodes = tree.map_structure(lambda array: array[start : start + size], experience)
            return start + size, train(episodes)

        nothing = tf_agent.LossInfo(0.0, reinforce_agent.ReinforceAgentLossInfo(*[0.0] * 5))
        _, loss = tf.while_loop(
            lambda start, _: start < tf.shape(experience.reward)[0],
            update,
            (0, tf.nest.map_structure(tf.constant, nothing)),
            parallel_iterations=1,
        )
        return loss

    def set_progress(self, progress: float) -> None:
        """Set learning rate and standard deviation; `progress` goes from 0 to 1 in training."""
        policy_gradients.set_progress(self._config, self.optimizer, self.actor_network, progress)

    def total_loss(
        self,
        experience: trajectory.Trajectory,
        returns: tf.Tensor,
        weights: Any,
        training: bool = False,
    ) -> tf_agent.LossInfo:
        """Return the loss over the N steps of [B, T] in which an action was taken."""
        taken, taken_returns = policy_gradients.taken_steps(experience, returns)
        with self.actor_network.once():
            return super().total_loss(taken, taken_returns, weights=weights, training=training)
