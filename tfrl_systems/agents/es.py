"""Evolution strategies: the policy's variables move to where returns are higher.

T. Salimans et al.: Evolution Strategies as a Scalable Alternative to Reinforcement Learning (2017),
Algorithm 2, with the ranks and mirrored noise of its section 2.1. A base policy of the BC-Max paper
is from an evolution strategy, too. In an iteration, N directions ε_k are tried at both ends:

    F_k± = mean return of the policy θ ± σ ε_k
    w_k± = rank of F_k± among all 2 N, evenly from -1/2 for the worst to 1/2 for the best
    θ   ← Adam(θ, 1 / (2 N) Σ_k (w_k+ - w_k-) ε_k)

With ranks, neither the unit of returns nor the lead of the best matters. Where episodes fail, the
rank is the worst. Policies take their likeliest actions; only the noise on the variables explores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.policies import actor_policy, greedy_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from tfrl_systems.agents import policy_gradients
from tfrl_systems.networks.adam import Adam
from tfrl_systems.networks.array_function import ArrayFunction
from tfrl_systems.policies.directions import Directions, Perturbation

COLLECTS = "directions"


@dataclasses.dataclass(frozen=True)
class Config(policy_gradients.NetworkConfig):
    """Settings of an evolution strategy, beside those of its network.

    Attributes:
      noise_std: σ, the standard deviation of the noise on each variable, in the first iteration.
      final_noise_std: σ in the last iteration. In between it falls by equal factors.
    """

    noise_std: float = 0.05
    final_noise_std: float = 0.005


class Info(NamedTuple):
    """Figures of an iteration's directions.

    Attributes:
      best_return, worst_return: among all ends of directions that did not fail.
      failed: number of ends whose episodes failed.
      step_norm: norm of the estimated gradient.
    """

    best_return: float
    worst_return: float
    failed: float
    step_norm: float


def make_agent(config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec) -> ESAgent:
    """Make an agent that learns by an evolution strategy (see `agents`)."""
    ranges = policy_gradients.positive(config, "noise_std", "final_noise_std")
    policy_gradients.check("es", config, ranges)
    return ESAgent(config, *tensor_spec.from_spec((time_step_spec, action_spec)))


class ESAgent(tf_agent.TFAgent):
    """The agent; make it with `make_agent`, which checks the arguments.

    `train` takes `Directions`.

    Attributes:
      optimizer: the Adam optimizer.
      actor_network: the network of the policy.
    """

    def __init__(
        self, config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec
    ) -> None:
        self._config = config
        actor = policy_gradients.make_actor(config, time_step_spec, action_spec)
        self.actor_network, self._variables = actor, list(actor.trainable_variables)
        self.optimizer = Adam(config.learning_rate, self._variables)
        policy = greedy_policy.GreedyPolicy(
            actor_policy.ActorPolicy(time_step_spec, action_spec, actor)
        )
        self._ascend_fn = ArrayFunction(self._ascend)
        self._perturbation = Perturbation.of(policy.variables(), self._variables, config.noise_std)
        super().__init__(
            time_step_spec,
            action_spec,
            policy,
            policy,
            train_sequence_length=None,
            train_step_counter=tf.Variable(0, dtype=tf.int64, trainable=False, name="train_step"),
        )

    def perturbation(self, iterations: int) -> Perturbation:
        """Return what workers need to try the directions of so many iterations."""
        return self._perturbation.falling_to(self._config.final_noise_std, iterations)

    def set_progress(self, progress: float) -> None:
        """Set the learning rate; `progress` goes from 0 to 1 in training."""
        config = self._config
        rates = config.learning_rate, config.final_learning_rate
        self.optimizer.set_learning_rate(policy_gradients.falling(*rates, progress))

    def _train(self, experience: Directions, weights: None = None) -> tf_agent.LossInfo:
        returns = experience.returns
        done = returns[np.isfinite(returns)]
        if not len(done):
            raise UserError(
                f"es: expected a direction whose episodes do not fail, found {len(returns)} that "
                f"do: {'; '.join(experience.messages[:1])}"
            )
        gradients = self._gradients(experience)
        self._ascend_fn(gradients)
        norm = float(
            np.sqrt(sum(np.sum(gradient.astype(np.float64) ** 2) for gradient in gradients))
        )
        failed = float(returns.size - len(done))
        info = Info(float(done.max()), float(done.min()), failed, norm)
        return tf_agent.LossInfo(-float(done.mean()), info)

    def _ascend(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
        # Adam descends.
        pairs = [
            (-gradient, variable)
            for gradient, variable in zip(gradients, self._variables, strict=True)
        ]
        self.optimizer.apply_gradients(pairs)
        return self.train_step_counter.assign_add(1)

    def _gradients(self, directions: Directions) -> list[np.ndarray]:
        """Return the estimated gradient of the rank, for each variable."""
        ranks = centred_ranks(directions.returns)
        weights = (ranks[:, 0] - ranks[:, 1]) / ranks.size
        sums = [np.zeros(variable.shape, np.float32) for variable in self._variables]
        for seeds, weight in zip(directions.seeds, weights, strict=True):
            for total, noise in zip(sums, self._perturbation.noise(seeds), strict=True):
                total += np.float32(weight) * noise
        return sums


def centred_ranks(returns: np.ndarray) -> np.ndarray:
    """Return ranks from -1/2 to 1/2, of the shape of `returns`.

    Equal returns have the same rank. Those that are no finite number are worse than all others.
    """
    import scipy.stats  # half a second, which other agents need not pay for

    scores = np.where(np.isfinite(returns), returns, -np.inf)
    ranks: np.ndarray = scipy.stats.rankdata(scores).reshape(returns.shape)
    return (ranks - 1) / max(ranks.size - 1, 1) - 0.5
