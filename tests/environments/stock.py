"""TF-Agents' own agents, networks, policies, driver and replay buffer on a flat environment.

Nothing here is this project's but `make` and the wrapper; it is what a user writes.
"""

from __future__ import annotations

import tensorflow as tf
from tf_agents.agents.dqn import dqn_agent
from tf_agents.agents.ppo import ppo_clip_agent
from tf_agents.agents.reinforce import reinforce_agent
from tf_agents.drivers import py_driver
from tf_agents.environments import batched_py_environment
from tf_agents.metrics import py_metrics
from tf_agents.networks import (
    actor_distribution_network,
    mask_splitter_network,
    q_network,
    value_network,
)
from tf_agents.policies import py_tf_eager_policy, random_py_policy
from tf_agents.replay_buffers import tf_uniform_replay_buffer
from tf_agents.specs import tensor_spec
from tf_agents.utils import common

import environments
from environments import wrappers

LAYERS = (32,)


class Stock:
    """A stock agent that learns in one of the environments.

    Args:
      agent: "ppo", "reinforce" or "dqn".
      system: name of the system.
      **settings: arguments of `environments.make`.
    """

    def __init__(self, agent: str, system: str, **settings) -> None:
        tf.random.set_seed(0)
        flat = wrappers.Flat(environments.make(system, **settings))
        self._splitter = wrappers.split_mask if flat.is_masked else None
        self._environment = batched_py_environment.BatchedPyEnvironment([flat])
        self._time_step_spec = tensor_spec.from_spec(flat.time_step_spec())
        self._action_spec = tensor_spec.from_spec(flat.action_spec())
        self.agent = {"ppo": self._ppo, "reinforce": self._reinforce, "dqn": self._dqn}[agent]()
        self.agent.initialize()
        self._train = common.function(self.agent.train, reduce_retracing=True)
        self._buffer = tf_uniform_replay_buffer.TFUniformReplayBuffer(
            self.agent.collect_data_spec, 1, max_length=2000
        )

    def chance(self, num_episodes: int) -> float:
        """The mean return of random actions that are allowed."""
        policy = random_py_policy.RandomPyPolicy(
            self._environment.time_step_spec(),
            self._environment.action_spec(),
            observation_and_action_constraint_splitter=self._splitter,
        )
        return self._mean_return(policy, num_episodes)

    def learned(self, num_episodes: int) -> float:
        """The mean return of the agent's policy."""
        return self._mean_return(self._compiled(self.agent.policy), num_episodes)

    def learn_on_policy(self, num_iterations: int, num_steps: int) -> None:
        """Collect steps and train on them, again and again."""
        policy = self._compiled(self.agent.collect_policy)
        for _ in range(num_iterations):
            self._play(policy, [self._keep], max_steps=num_steps)
            self._train(self._buffer.gather_all())
            self._buffer.clear()

    def learn_from_replay(self, num_rounds: int, num_steps: int, num_updates: int) -> None:
        """Collect steps and train on samples of all of them, again and again."""
        policy = self._compiled(self.agent.collect_policy)
        for _ in range(num_rounds):
            self._play(policy, [self._keep], max_steps=num_steps)
            samples = iter(self._buffer.as_dataset(sample_batch_size=64, num_steps=2))
            for _ in range(num_updates):
                self._train(next(samples)[0])

    def close(self) -> None:
        self._environment.close()

    def _compiled(self, policy):
        return py_tf_eager_policy.PyTFEagerPolicy(
            policy, use_tf_function=True, batch_time_steps=False
        )

    def _keep(self, trajectory) -> None:
        self._buffer.add_batch(tf.nest.map_structure(tf.convert_to_tensor, trajectory))

    def _play(self, policy, observers, **limits) -> None:
        driver = py_driver.PyDriver(self._environment, policy, observers, **limits)
        driver.run(self._environment.reset(), policy.get_initial_state(1))

    def _mean_return(self, policy, num_episodes: int) -> float:
        metric = py_metrics.AverageReturnMetric(buffer_size=num_episodes)
        self._play(policy, [metric], max_episodes=num_episodes)
        return float(metric.result())

    def _vector_spec(self):
        spec = self._time_step_spec.observation
        return self._splitter(spec)[0] if self._splitter else spec

    def _masked(self, network, passes_mask: bool):
        if not self._splitter:
            return network
        return mask_splitter_network.MaskSplitterNetwork(
            self._splitter,
            network,
            passthrough_mask=passes_mask,
            input_tensor_spec=self._time_step_spec.observation,
        )

    def _actor(self):
        network = actor_distribution_network.ActorDistributionNetwork(
            self._vector_spec(), self._action_spec, fc_layer_params=LAYERS
        )
        return self._masked(network, passes_mask=True)

    def _ppo(self):
        value = value_network.ValueNetwork(self._vector_spec(), fc_layer_params=LAYERS)
        return ppo_clip_agent.PPOClipAgent(
            self._time_step_spec,
            self._action_spec,
            optimizer=_optimizer(),
            actor_net=self._actor(),
            value_net=self._masked(value, passes_mask=False),
            num_epochs=5,
            # It would also normalise the mask.
            normalize_observations=False,
        )

    def _reinforce(self):
        return reinforce_agent.ReinforceAgent(
            self._time_step_spec, self._action_spec, self._actor(), _optimizer()
        )

    def _dqn(self):
        network = q_network.QNetwork(self._vector_spec(), self._action_spec, fc_layer_params=LAYERS)
        return dqn_agent.DqnAgent(
            self._time_step_spec,
            self._action_spec,
            network,
            _optimizer(),
            observation_and_action_constraint_splitter=self._splitter,
            epsilon_greedy=0.2,
            target_update_period=20,
        )


def _optimizer():
    return tf.compat.v1.train.AdamOptimizer(1e-2)
