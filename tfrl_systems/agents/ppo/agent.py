"""The settings, the agent with one policy and one value function, and what others share with it."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf
import tree
from tf_agents.agents import tf_agent
from tf_agents.agents.ppo import ppo_agent, ppo_clip_agent, ppo_utils
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory
from tf_agents.utils import common

from tfrl_systems.agents import policy_gradients
from tfrl_systems.networks.array_function import ArrayFunction

# Added to errors of values before their logarithm is taken, which does not exist at 0. Small beside
# normalised rewards.
_LEAST_ERROR = 1e-4


@dataclasses.dataclass(frozen=True)
class Config(policy_gradients.Config):
    """Settings of a PPO agent, beside those that policy gradient agents share.

    Attributes:
      num_epochs: how many times the agent learns from the experience of an iteration.
      minibatch_size: steps of experience that one step of Adam sees, drawn without replacement; 0
        for all. With graphs it bounds the memory: one of a thousand nodes takes about 10 MB.
      clip: how far the ratio of new to old probability may leave 1 before its gradient is cut off.
      gae_lambda: from 0 (advantages rely on the value network) to 1 (they rely on the returns).
      relative_advantages: whether advantages are divided by their usual size at the observation,
        which the value network learns beside the value. For some c an action can change orders of
        magnitude less than for others, and noise can be stronger; the division lets the policy
        learn all c alike.
      normalize_observations: whether float observations are brought to mean 0 and variance 1 by
        running statistics, which are part of the policy. Integers and graphs are never normalised,
        nor what several components see.
      normalize_rewards: whether rewards are divided by their running standard deviation.
      components: for float actions: how many answers the policy has for each observation, of which
        it takes the one that it expects most from (`networks.mixture`). Where the best answer jumps
        from one basin to another, several find it, whatever the seed.
      two_policies: for graph observations: whether rule and location are chosen by two policies,
        whose ratios are clipped each by itself, and which have a value function each, as in the
        thesis (3.3). If not, the pair is one action.
    """

    num_epochs: int = 10
    minibatch_size: int = 0
    clip: float = 0.2
    gae_lambda: float = 0.95
    relative_advantages: bool = False
    normalize_observations: bool = False
    normalize_rewards: bool = True
    components: int = dataclasses.field(default=1, metadata={"is_later": True})
    two_policies: bool = dataclasses.field(default=False, metadata={"is_later": True})


def ranges(config: Config) -> dict[str, bool]:
    """Return for each of PPO's own settings whether it is within its range."""
    return {
        **policy_gradients.at_least(config, 1, "num_epochs"),
        **policy_gradients.at_least(config, 0, "minibatch_size"),
        **policy_gradients.positive(config, "clip"),
        "gae_lambda": 0 <= config.gae_lambda <= 1,
        # What follows needs a value network that learns.
        "relative_advantages": config.group == 1 or not config.relative_advantages,
        "components": config.components == 1 or (config.components > 1 and config.group == 1),
        "two_policies": (config.group == 1 and config.components == 1) or not config.two_policies,
    }


class Learned(NamedTuple):
    """The steps that an update learns from, all with leading axes [1, N].

    Attributes:
      time_steps: time steps in which actions were taken.
      actions: the actions that were taken.
      log_probabilities: log-probabilities of the actions under the policy that took them.
      returns: the returns that the value network learns.
      advantages: advantages, with mean 0 and variance 1 over all steps of the experience.
    """

    time_steps: ts.TimeStep
    actions: tf.Tensor
    log_probabilities: tf.Tensor
    returns: tf.Tensor
    advantages: tf.Tensor


class PPOAgent(ppo_clip_agent.PPOClipAgent):
    """A PPO agent; make it with `make_agent`, which checks the arguments.

    `train` takes a Trajectory [B, T] of whole episodes, padded with boundary steps. Given arrays it
    returns arrays, and given tensors tensors.

    Attributes:
      optimizer: the Adam optimizer.
      actor_network: the network of the policy.
      value_network: the network of values.
    """

    def __init__(
        self, config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec
    ) -> None:
        self._config = config
        self.actor_network, self.value_network, self.optimizer = policy_gradients.make_parts(
            config,
            time_step_spec,
            action_spec,
            has_spread=config.relative_advantages,
            two_policies=config.two_policies,
            components=config.components,
        )
        super().__init__(
            time_step_spec,
            action_spec,
            optimizer=self.optimizer,
            actor_net=self.actor_network,
            value_net=self.value_network,
            importance_ratio_clipping=config.clip,
            lambda_value=config.gae_lambda,
            discount_factor=config.gamma,
            entropy_regularization=config.entropy_regularization,
            value_pred_loss_coef=config.value_weight if config.group == 1 else 0.0,
            num_epochs=config.num_epochs,
            use_gae=True,
            use_td_lambda_return=True,
            normalize_rewards=config.normalize_rewards,
            normalize_observations=config.normalize_observations
            and self.actor_network.can_be_normalized,
            aggregate_losses_across_replicas=False,
            train_step_counter=tf.Variable(0, dtype=tf.int64, trainable=False, name="train_step"),
        )
        # The longest episode is of another length in each iteration.
        self._train_fn = ArrayFunction(self._train, open_axes=2)

    def set_progress(self, progress: float) -> None:
        """Set learning rate and standard deviation; `progress` goes from 0 to 1 in training."""
        policy_gradients.set_progress(self._config, self.optimizer, self.actor_network, progress)

    def _train(self, experience: trajectory.Trajectory, weights: None = None) -> tf_agent.LossInfo:
        steps = self._taken_steps(experience)
        learned = self._learned(steps)
        num_parts = self._num_parts(learned.advantages)

        def update(number: tf.Tensor, _: Any) -> tuple[tf.Tensor, Any]:
            return number + 1, self._update(self._part(learned, number, num_parts))

        nothing = tf_agent.LossInfo(0.0, ppo_agent.PPOLossInfo(*[0.0] * 6))
        _, loss = tf.while_loop(
            lambda number, _: number < self._num_epochs * num_parts,
            update,
            (0, tf.nest.map_structure(tf.constant, nothing)),
        )
        # After the updates, which must see the numbers that the policy acted on.
        self.update_observation_normalizer(steps.observation)
        self.update_reward_normalizer(steps.reward)
        self.train_step_counter.assign_add(1)
        return loss

    def _learned(self, steps: trajectory.Trajectory) -> Learned:
        """Return what the updates learn from steps [1, N] that have returns and advantages."""
        info = steps.policy_info
        return Learned(
            ts.TimeStep(steps.step_type, steps.reward, steps.discount, steps.observation),
            steps.action,
            common.log_probability(self._drawn_from(info), steps.action, self._action_spec),
            info["return"],
            policy_gradients.normalised(info["advantage"] * tf.exp(-info["log_spread"])),
        )

    def _drawn_from(self, info: Any) -> Any:
        """Return the distributions that actions were drawn from."""
        return ppo_utils.distribution_from_spec(
            self._action_distribution_spec, info["dist_params"], legacy_distribution_network=False
        )

    def _num_parts(self, advantages: tf.Tensor) -> tf.Tensor | int:
        """Return the number of minibatches of an epoch."""
        size = self._config.minibatch_size
        return -(-tf.shape(advantages)[1] // size) if size else 1

    def _part(self, learned: Learned, number: tf.Tensor, num_parts: tf.Tensor | int) -> Learned:
        """Return what update `number` learns from: all steps, or one of an epoch's minibatches.

        The sizes of minibatches differ by at most one. The order of the steps differs between
        epochs. It depends only on the configuration's seed and on the number of epochs before.
        """
        if not self._config.minibatch_size:
            return learned
        num_steps = tf.shape(learned.advantages)[1]
        epoch = self.train_step_counter * self._num_epochs + tf.cast(number // num_parts, tf.int64)
        order = tf.random.experimental.stateless_shuffle(
            tf.range(num_steps), tf.stack([tf.constant(self._config.seed, tf.int64), epoch])
        )
        part = number % num_parts
        places = order[part * num_steps // num_parts : (part + 1) * num_steps // num_parts]
        return tree.map_structure(lambda array: tf.gather(array, places, axis=1), learned)

    def _update(self, learned: Learned) -> tf_agent.LossInfo:
        """Do one step of Adam; return the loss before it."""
        variables = [*self._actor_net.trainable_variables, *self._value_net.trainable_variables]
        with tf.GradientTape() as tape, self.actor_network.once():
            loss = self.get_loss(
                learned.time_steps,
                learned.actions,
                learned.log_probabilities,
                learned.returns,
                learned.advantages,
                None,  # parameters of old distributions, which only a KL penalty needs
                tf.ones_like(learned.time_steps.reward),
                self.train_step_counter,
                debug_summaries=False,
                training=True,
            )
        gradients = tape.gradient(loss.loss, variables)
        self._optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    def value_estimation_loss(
        self, time_steps: ts.TimeStep, returns: tf.Tensor, *args: Any, **kwargs: Any
    ) -> tf.Tensor:
        """Return the squared error of values; for relative advantages, add that of log spreads."""
        if not self._config.relative_advantages:
            return super().value_estimation_loss(time_steps, returns, *args, **kwargs)
        values, log_spread = self._values(time_steps.observation, (), training=True)
        return self._config.value_weight * relative_loss(values, log_spread, returns)

    def _values(
        self, observation: Any, step_type: Any, training: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return values of states, and logarithms of the usual distance of returns from them."""
        if self._observation_normalizer is not None:
            observation = self._observation_normalizer.normalize(observation)
        return self._value_net.value_and_log_spread(observation, step_type, training)

    def _preprocess(self, experience: trajectory.Trajectory) -> trajectory.Trajectory:
        """Return steps [B, T + 1] with returns and advantages, which are 0 at the last step.

        This is what TF-Agents does, except that there are log spreads, too.
        """
        values, log_spread = self._values(
            experience.observation, experience.step_type, training=False
        )
        _, _, next_time_steps = self._collected_as_transition(experience)
        returns, advantages = self.compute_return_and_advantage(next_time_steps, values)
        info = {"dist_params": experience.policy_info["dist_params"], "log_spread": log_spread}
        for name, column in (("return", returns), ("advantage", advantages)):
            info[name] = tf.pad(column, [[0, 0], [0, 1]])
        return experience.replace(policy_info=info)

    def _taken_steps(self, experience: trajectory.Trajectory) -> trajectory.Trajectory:
        """Return the steps in which an action was taken, [1, N], with returns and advantages."""
        whole = self._preprocess(self._as_trajectory(policy_gradients.with_boundary(experience)))
        if self._config.group > 1:
            advantage = policy_gradients.advantages_of_groups(self._config, experience)
            advantage = tf.pad(advantage, [[0, 0], [0, 1]])
            whole = whole.replace(policy_info=whole.policy_info | {"advantage": advantage})
        return policy_gradients.taken_steps(whole)


def relative_loss(values: tf.Tensor, log_spread: tf.Tensor, returns: tf.Tensor) -> tf.Tensor:
    """Return the squared error of values, and that of the logarithms of their usual error."""
    errors = returns - values
    return tf.reduce_mean(errors**2) + tf.reduce_mean((log_spread - log_sizes(errors)) ** 2)


def log_sizes(errors: tf.Tensor) -> tf.Tensor:
    """Return the logarithms of errors' sizes, through which no gradient flows."""
    return tf.math.log(tf.abs(tf.stop_gradient(errors)) + _LEAST_ERROR)
