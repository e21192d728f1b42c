"""REINFORCE with a learned value function as its baseline.

R. J. Williams: Simple statistical gradient-following algorithms for connectionist reinforcement
learning (1992); the baseline as in R. S. Sutton, A. G. Barto: Reinforcement Learning, an
Introduction (2018), section 13.4:

    ∇J = E Σ_t ∇ log π(a_t | s_t) (G_t - V(s_t)),    G_t = r_t + γ d_t G_{t+1},

where the discount d_t is 0 at an episode's end. It is TF-Agents' `ReinforceAgent`. What differs
is what a step of training sees: the actions that were taken and nothing else, where TF-Agents'
means and variances count padding; and an iteration's episodes can be learned from some at a time.
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
from tf_agents.utils import common

from tfrl_systems.agents import policy_gradients


@dataclasses.dataclass(frozen=True)
class Config(policy_gradients.Config):
    """Settings of a REINFORCE agent, beside those that policy gradient agents share.

    Attributes:
      episodes_per_update: episodes that one step of Adam sees; 0 for all of an iteration. With
        graphs it bounds the memory: a step at a graph of a thousand nodes takes about 10 MB. From
        the second update of an iteration on, the policy is no longer quite the one that collected.
      normalize_advantages: whether those of an iteration are brought to mean 0 and variance 1.
    """

    episodes_per_update: int = 0
    normalize_advantages: bool = True


def make_agent(
    config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec
) -> ReinforceAgent:
    """A REINFORCE agent.

    Args:
      config: its settings.
      time_step_spec: the observation is a nest of numbers, or a graph with a list of actions.
      action_spec: a bounded float32 vector, or an integer scalar from 0 on; with a graph,
        (xfer_id, location).

    Raises:
      UserError: a setting is out of its range, or the specs are of another kind.
    """
    policy_gradients.check(
        "reinforce",
        config,
        {
            "episodes_per_update": config.episodes_per_update >= 0,
        },
    )
    return ReinforceAgent(
        config, tensor_spec.from_spec(time_step_spec), tensor_spec.from_spec(action_spec)
    )


class ReinforceAgent(reinforce_agent.ReinforceAgent):
    """See `make_agent`, which checks the arguments.

    `train` takes a Trajectory [B, T] of whole episodes, padded with boundary steps; of an episode
    that is cut off nothing is learned. The policy's variables are the actor's alone: the value
    network is needed for training only.

    Attributes:
      optimizer: Adam.
      actor_network: what the policy is made of.
    """

    def __init__(
        self, config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec
    ) -> None:
        self._config = config
        parts = policy_gradients.make_parts(config, time_step_spec, action_spec)
        self.actor_network, self.optimizer = parts.actor, parts.optimizer
        super().__init__(
            time_step_spec,
            action_spec,
            actor_network=parts.actor,
            optimizer=self.optimizer,
            value_network=parts.value,
            value_estimation_loss_coef=config.value_weight,
            gamma=config.gamma,
            normalize_returns=config.normalize_advantages,
            entropy_regularization=config.entropy_regularization or None,
            train_step_counter=tf.Variable(0, dtype=tf.int64, trainable=False, name="train_step"),
        )
        self._train_fn = common.function(self._train)

    def _train(self, experience: trajectory.Trajectory, weights: None = None) -> tf_agent.LossInfo:
        if weights is not None:
            raise ValueError("reinforce: expected no weights, found some; all steps count alike")
        size = self._config.episodes_per_update
        train = super()._train
        if not size:
            return train(experience)

        def update(start: tf.Tensor, _: Any) -> tuple[tf.Tensor, Any]:
            some = tree.map_structure(lambda array: array[start : start + size], experience)
            return start + size, train(some)

        nothing = tf_agent.LossInfo(0.0, reinforce_agent.ReinforceAgentLossInfo(*[0.0] * 5))
        _, loss = tf.while_loop(
            lambda start, _: start < tf.shape(experience.reward)[0],
            update,
            (0, tf.nest.map_structure(tf.constant, nothing)),
            parallel_iterations=1,
        )
        return loss

    def set_progress(self, progress: float) -> None:
        """Sets what changes during the training; `progress` goes from 0 at its start to 1."""
        policy_gradients.set_progress(self._config, self.optimizer, self.actor_network, progress)

    def total_loss(
        self,
        experience: trajectory.Trajectory,
        returns: tf.Tensor,
        weights: Any,
        training: bool = False,
    ) -> tf_agent.LossInfo:
        """The loss over the steps that were taken, [1, N] of [B, T]."""
        taken, taken_returns = policy_gradients.taken_steps(experience, returns)
        with self.actor_network.once():
            return super().total_loss(taken, taken_returns, weights=weights, training=training)
