"""BC-Max for policies of any kind: clone the best known episode of each context.

T. V. Marinov, A. Agarwal, M. Trofin: Scalable RL for Systems via Offline Imitation from Multiple
Baselines (2024). In iteration i workers play several baselines in each context: the system's
teachers, such as searches, and the policy of iteration i - 1. Algorithm 4 plays all policies so far
and explores around them; here the agent keeps the cheapest episode of each context (`lessons`), and
teachers explore. Algorithm 4 fits a policy anew; here the same policy takes steps of Adam on

    - Σ_x w_x Σ_h Σ_a q(a | s_{x,h}) log π(a | s_{x,h})

over the steps h of the best episode of context x. q is 1 for the action that was taken, as in line
7 of Algorithm 1, whose factor a before the logarithm is a slip. Where several actions are equally
good, because the best episode takes them later and could as well take them now, the teacher lists
them in `targets`, and q gives each the same share.

A teacher that knows what the other actions cost adds a second label, `regrets`. Each step's loss
then includes regret_weight Σ_a π(a | s) regret(a | s).
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.policies import actor_policy, greedy_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.utils import common

from tfrl_systems.agents import policy_gradients
from tfrl_systems.agents.lessons import Lessons, Records, Steps
from tfrl_systems.episodes import Experience
from tfrl_systems.networks.adam import Adam
from tfrl_systems.networks.array_function import ArrayFunction
from tfrl_systems.networks.graph_actors import NEEDED, GraphActorNetwork

# Float actions that differ by less than this share of half their range agree.
_NEAR = 0.1

COLLECTS = "lessons"

CONTEXT_WEIGHTS = ("even", "buckets", "hedge")
BUCKETED_BY = ("best", "first")


@dataclasses.dataclass(frozen=True)
class Config(policy_gradients.NetworkConfig):
    """Settings of a cloning agent, beside those of its network.

    Attributes:
      attempts: episodes that the policy plays in each context, where it is the only teacher.
      updates: steps of Adam in each iteration.
      batch_size: steps of episodes that each of them sees.
      max_lesson_steps: the most steps that are remembered; the oldest contexts are forgotten.
      context_weights: how contexts count: "even"; "buckets" gives each power of two of cost the
        same weight (D.3); "hedge" begins with that, and shifts towards those where the learned
        policies cost most (D.4).
      bucketed_by: costs that divide contexts into buckets: of the "best" episode so far, so that a
        context may move to another bucket; or of the best in the iteration that met the context
        "first", as D.3 has it.
      hedge_eta: step size of Hedge, η.
      regret_weight: weight of the regrets that teachers know; 0 to learn from the best steps only.
      gradient_clipping: greatest norm of a gradient; 0 for no limit.
      action_std: standard deviation of float actions that the policy draws at first, as a share of
        half their range.
      final_action_std: the same at the end. In between it falls by equal factors.
    """

    attempts: int = 8
    updates: int = 100
    batch_size: int = 64
    max_lesson_steps: int = 20_000
    context_weights: str = "even"
    bucketed_by: str = dataclasses.field(default="best", metadata={"is_later": True})
    hedge_eta: float = 1.0
    regret_weight: float = 0.0
    gradient_clipping: float = 1.0
    action_std: float = 0.5
    final_action_std: float = 0.05


class Info(NamedTuple):
    """Figures of an iteration's training.

    Attributes:
      agreement: share of the steps, in the last quarter of the updates, at which the likeliest
        action is one of those to imitate; for float actions, the share within a tenth of half
        the range.
      contexts: number of contexts that are known.
      steps: number of steps of their episodes.
      learned_over_best: cost of the policy before this iteration over that of the best episode, in
        the contexts of this iteration where both are known; 0 if there are none.
    """

    agreement: float
    contexts: float
    steps: float
    learned_over_best: float


def make_agent(config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec) -> BCMaxAgent:
    """Make an agent that clones the best known episodes (see `agents`)."""
    ranges = {
        **policy_gradients.at_least(
            config, 1, "attempts", "updates", "batch_size", "max_lesson_steps"
        ),
        "context_weights": config.context_weights in CONTEXT_WEIGHTS,
        "bucketed_by": config.bucketed_by in BUCKETED_BY,
        **policy_gradients.at_least(config, 0, "hedge_eta", "regret_weight"),
    }
    policy_gradients.check("bc_max", config, ranges)
    return BCMaxAgent(config, *tensor_spec.from_spec((time_step_spec, action_spec)))


class BCMaxAgent(tf_agent.TFAgent):
    """The agent; make it with `make_agent`, which checks the arguments.

    `train` takes `Experience` whose info holds `cost`; see `Lessons.add`. The trajectory's policy
    info may hold `targets`, float32 [B, T, A], and `regrets`, float32 [B, T, A], for each of the A
    actions that the observation lists.

    Attributes:
      optimizer: the Adam optimizer.
      actor_network: the network of the policy.
      lessons: the best episodes so far.
    """

    def __init__(
        self, config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec
    ) -> None:
        self._config = config
        actor = policy_gradients.make_actor(config, time_step_spec, action_spec, config.action_std)
        self.actor_network = actor
        variables = list(actor.trainable_variables)
        self.optimizer = Adam(config.learning_rate, variables, config.gradient_clipping)
        self.lessons = Lessons(config.max_lesson_steps)
        collect_policy = actor_policy.ActorPolicy(time_step_spec, action_spec, actor)
        self._update_fn = ArrayFunction(self._update)
        super().__init__(
            time_step_spec,
            action_spec,
            greedy_policy.GreedyPolicy(collect_policy),
            collect_policy,
            train_sequence_length=None,
            train_step_counter=tf.Variable(0, dtype=tf.int64, trainable=False, name="train_step"),
        )

    def set_progress(self, progress: float) -> None:
        """Set learning rate and standard deviation; `progress` goes from 0 to 1 in training."""
        config, falling = self._config, policy_gradients.falling
        rates = config.learning_rate, config.final_learning_rate
        self.optimizer.set_learning_rate(falling(*rates, progress))
        self.actor_network.set_std(falling(config.action_std, config.final_action_std, progress))

    def _train(self, experience: Experience, weights: None = None) -> tf_agent.LossInfo:
        number = int(self.train_step_counter.numpy())
        generator = np.random.default_rng([self._config.seed, number])
        self.lessons.add(self._as_seen(experience), number)
        records = self.lessons.records
        assert records is not None
        of_contexts = weights_of(records, self._config)
        outcomes = []
        for _ in range(self._config.updates):
            steps = self.lessons.draw(self._config.batch_size, of_contexts, generator)
            outcomes.append(self._update_fn(steps))
        self.train_step_counter.assign_add(1)
        late = np.array(outcomes[len(outcomes) * 3 // 4 :], np.float64)
        loss, agreement = late.mean(axis=0).tolist()
        info = Info(
            agreement,
            float(len(records.cost)),
            float(self.lessons.num_steps),
            _learned_over_best(records, number),
        )
        return tf_agent.LossInfo(loss, info)

    def _as_seen(self, experience: Experience) -> Experience:
        """Return experience with those parts of observations that the network needs."""
        if not isinstance(self.actor_network, GraphActorNetwork):
            return experience
        observation = experience.trajectory.observation
        needed = {name: observation[name] for name in NEEDED}
        steps = experience.trajectory._replace(observation=needed)
        return dataclasses.replace(experience, trajectory=steps)

    def _update(self, steps: Steps) -> tuple[tf.Tensor, tf.Tensor]:
        """Do one step of Adam; return the loss before it, and the agreement."""
        variables = self.actor_network.trainable_variables
        with tf.GradientTape() as tape:
            loss, agreement = self._loss(steps)
        # Only a value network would read the encoder's last vectors of whole graphs.
        gradients = tape.gradient(
            loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss, agreement

    def _loss(self, steps: Steps) -> tuple[tf.Tensor, tf.Tensor]:
        # Not by `__call__`, which wants the parts of an observation that the network does not need.
        distribution, _ = self.actor_network.call(steps.observation)
        if "targets" not in steps.info:
            logs = common.log_probability(distribution, steps.action, self._action_spec)
            return -tf.reduce_mean(logs), tf.reduce_mean(self._agrees(distribution, steps.action))
        logs = tf.nn.log_softmax(distribution.logits)
        losses = -tf.reduce_sum(steps.info["targets"] * logs, axis=-1)
        if self._config.regret_weight:
            regrets = tf.reduce_sum(steps.info["regrets"] * tf.exp(logs), axis=-1)
            losses += self._config.regret_weight * regrets
        likeliest = tf.argmax(distribution.logits, axis=-1)
        agrees = tf.gather(steps.info["targets"], likeliest, batch_dims=1) > 0
        return tf.reduce_mean(losses), tf.reduce_mean(tf.cast(agrees, tf.float32))

    def _agrees(self, distribution: Any, action: tf.Tensor) -> tf.Tensor:
        """Return for each step whether the likeliest action is the one to imitate, float32 [N]."""
        mode = distribution.mode()
        if mode.dtype.is_floating:
            half = (self._action_spec.maximum - self._action_spec.minimum) / 2
            is_near = tf.abs(mode - action) <= _NEAR * half
            return tf.cast(tf.reduce_all(is_near, axis=-1), tf.float32)
        return tf.cast(tf.equal(mode, tf.cast(action, mode.dtype)), tf.float32)

    def report(self) -> dict[str, Any]:
        """Return the entry `bc_max` of result.json."""
        records = self.lessons.records
        return {
            "contexts": 0 if records is None else len(records.cost),
            "steps": self.lessons.num_steps,
        }

    def tables(self) -> Mapping[str, Any]:
        """Return no pictures."""
        return {}

    def save(self, directory: pathlib.Path) -> None:
        """Write into a directory what a resumed run needs beside the variables."""
        self.lessons.save(directory)

    def restore(self, directory: pathlib.Path) -> None:
        """Read what `save` wrote."""
        nothing = tensor_spec.zero_spec_nest(
            (self.time_step_spec.observation, self.action_spec), [1]
        )
        observation, action = tf.nest.map_structure(lambda tensor: tensor.numpy(), nothing)
        info: Any = ()
        if isinstance(self.actor_network, GraphActorNetwork):
            observation = {name: observation[name] for name in NEEDED}
            names = ("targets", "regrets") if self._config.regret_weight else ("targets",)
            info = {name: np.zeros(observation["action_mask"].shape, np.float32) for name in names}
        self.lessons.restore(directory, Steps(observation, action, info))


def weights_of(records: Records, config: Config) -> np.ndarray:
    """Return the weight of each context, float64 [L]; the settings say how.

    Contexts are drawn anew in each iteration, and of each only the last learned policy's cost is
    remembered. So Hedge has one update for each iteration in which some context was met last, where
    D.4 has one for each policy so far, on all contexts. A context that was not met in an iteration,
    or in which no learned policy was played, counts there as if that policy had done its best.
    """
    sizes = np.maximum(records.cost, 0.0)
    by_first = config.bucketed_by == "first"
    bucketed = np.maximum(records.first_cost, 0.0) if by_first else sizes
    met = np.where(np.isnan(records.learned_cost), sizes, records.learned_cost)
    learned = [
        np.where(records.iteration == iteration, met, sizes)
        for iteration in np.unique(records.iteration)
    ]
    return context_weights(config.context_weights, bucketed, np.stack(learned), config.hedge_eta)


def context_weights(
    kind: str,
    sizes: Sequence[float] | np.ndarray,
    learned_sizes: Sequence[Sequence[float]] | np.ndarray,
    hedge_eta: float,
) -> np.ndarray:
    """Return how contexts count by one of `CONTEXT_WEIGHTS`; see `hedge_weights` for the rest."""
    if kind == "even":
        return np.ones(len(sizes))
    if kind == "buckets":
        return bucket_weights(sizes)
    return hedge_weights(sizes, learned_sizes, hedge_eta)


def _learned_over_best(records: Records, iteration: int) -> float:
    is_new = (records.iteration == iteration) & ~np.isnan(records.learned_cost)
    best = float(records.cost[is_new].sum())
    return float(records.learned_cost[is_new].sum()) / best if best else 0.0


def bucket_weights(sizes: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return weights that give each bucket of sizes the same total (D.3).

    Bucket 0 holds the sizes in [0, 1), bucket m those in [2^(m-1), 2^m), and

        w_x = max_m |b_m| / |b_{m(x)}|,    float64 [n], at least 1,

    where D.3 has sizes of n modules under the first policy, or under the best of the baselines;
    `bucketed_by` says which costs of contexts stand for them.
    """
    buckets = _buckets(sizes)
    counts = np.bincount(buckets)
    return counts.max() / counts[buckets].astype(np.float64)


def hedge_weights(
    sizes: Sequence[float] | np.ndarray,
    learned_sizes: Sequence[Sequence[float]] | np.ndarray,
    eta: float,
) -> np.ndarray:
    """Return weights that grow where the learned policies left modules large (D.4).

    The first shares are p_m^1 = |b_m| / Σ_m |b_m| over the buckets b_m of D.3. Hedge then updates
    them for each learned policy π_t,

        L~_m = Σ_{x in b_m} size(x, π_t),  L = L~ / max_m L~_m,  p_m^{t+1} ∝ p_m^t exp(-η L_m),

    and w_x = max_m p_m / p_{m(x)}. Losses are sums of sizes as the paper's D.4 prints them, though
    its section 3 speaks of the performance relative to the best baseline. The norm that D.4 prints
    as that of L^t is taken as that of L~^t.

    Args:
      sizes: size of each module that decides its bucket, [n]; see `bucket_weights`.
      learned_sizes: sizes under each learned policy so far, [t, n]; t may be 0.
      eta: step size of Hedge, η >= 0.

    Returns:
      float64 [n], at least 1.
    """
    buckets = _buckets(sizes)
    counts = np.bincount(buckets)
    share = counts / counts.sum()
    for learned in np.reshape(np.asarray(learned_sizes, np.float64), (-1, len(buckets))):
        losses = np.bincount(buckets, weights=learned)
        share = share * np.exp(-eta * losses / (losses.max() or 1.0))
        share /= share.sum()
    return share.max() / share[buckets]


def _buckets(sizes: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the bucket m(x) of each size: the number of bits of its whole part."""
    return np.frexp(np.floor(np.asarray(sizes, np.float64)))[1]
