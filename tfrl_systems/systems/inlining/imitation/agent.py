"""BC-Max: an agent that clones the best known decisions.

T. V. Marinov, A. Agarwal, M. Trofin: Scalable RL for Systems via Offline Imitation from Multiple
Baselines: A Case Study in Compiler Optimization (2024).

The agent is the learning step of Algorithm 1, line 7 (the same line in Algorithm 4): a weighted
cross-entropy over state-action pairs,

    min over π of  - Σ_j w_j Σ_h log π(a_{j,h} | s_{j,h}),

The paper prints this with a factor a_{j,h} before the logarithm, which would drop every action 0.
Equation (2) has no such factor, and neither has this agent. The pairs come from the best trajectory
of each module (`training.decisions.best_per_context`), or from better labels if there are any.
`labelled_experience` makes experience from them.

`train` fits the model from scratch to all pairs that it is given. The result depends on the pairs,
the configuration and the seed, but not on earlier training.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.policies import greedy_policy
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from environments.errors import UserError
from tfrl_systems.systems.inlining.policy import decision_network, decision_policy, votes
from tfrl_systems.systems.inlining.policy.decision_policy import to_numpy

# Loss and agreement are computed on at most this many rows, evenly spread.
_MAX_SCORED_ROWS = 10_000


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of a BC-Max agent.

    Attributes:
      num_models: members of the ensemble; their logits are averaged.
      features: names of the observations that the model sees; () for all.
      baseline_feature: observation that holds the baseline's action; "" for no baseline.
      scope_feature: observation that is 1 where the policy may depart from the baseline; "" if it
        may do so everywhere.
      margin: logit added in favour of the baseline's action; the policy departs from the baseline
        only if it is surer than this. Below 0 it departs before it is sure.
      seed: decides all randomness of the training.
      hidden_sizes: units of the hidden layers, at most 256 each.
      num_knots: quantiles of the normalisation.
      epochs: passes over the data.
      batch_size: rows of a minibatch.
      network_learning_rate: Adam's learning rate at the start; it falls linearly to 0.
      weight_decay: decoupled weight decay, multiplied by the learning rate.
    """

    num_models: int = 3
    features: tuple[str, ...] = ()
    baseline_feature: str = "inlining_default"
    scope_feature: str = ""
    margin: float = 0.0
    seed: int = 0
    hidden_sizes: tuple[int, ...] = (64, 64)
    num_knots: int = 65
    epochs: int = 30
    batch_size: int = 256
    network_learning_rate: float = 3e-3
    weight_decay: float = 1e-2


DecisionInfo = collections.namedtuple("DecisionInfo", ["agreement", "num_rows"])
"""The weighted share of the rows whose action the greedy policy takes, and the number of rows."""


def make_agent(
    config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec
) -> tf_agent.TFAgent:
    """Make a BC-Max agent.

    Args:
      config: settings of the agent.
      time_step_spec: spec whose observation is a dict of integer scalars by feature name.
      action_spec: spec of an integer scalar, 0 or 1.

    Returns:
      The agent.

    Raises:
      UserError: a setting is out of its range, or does not fit the specs.
    """
    offered = time_step_spec.observation
    if not isinstance(offered, dict) or any(spec.shape.rank for spec in offered.values()):
        raise UserError("bc_max: expected a dict of integer scalars as observation; found another")
    if action_spec.shape.rank or (np.min(action_spec.minimum), np.max(action_spec.maximum)) != (
        0,
        1,
    ):
        raise UserError(f"bc_max: expected a scalar action, 0 or 1; found {action_spec}")
    _check(config, tuple(offered))
    return DecisionAgent(config, time_step_spec, action_spec)


class DecisionAgent(tf_agent.TFAgent):
    """A BC-Max agent; make it with `make_agent`, which checks the arguments.

    `policy` takes the likelier action; `collect_policy` draws an action. `train` takes a Trajectory
    [B, T] and weights [B, T] (1 if None); boundary steps never count. `train` needs eager
    execution: do not wrap it in `common.function`.
    """

    # The networks have graph functions of their own.
    _enable_functions = False

    def __init__(
        self, config: Config, time_step_spec: ts.TimeStep, action_spec: tf.TypeSpec
    ) -> None:
        self._config = config
        self._feature_names = config.features or tuple(sorted(time_step_spec.observation))
        self._model = _make_model(config, len(self._feature_names))
        collect_policy = decision_policy.DecisionPolicy(
            time_step_spec,
            action_spec,
            self._model,
            self._feature_names,
            config.baseline_feature,
            config.margin,
            dataclasses.asdict(config),
            config.scope_feature,
        )
        self._decision_policy = collect_policy
        super().__init__(
            time_step_spec,
            action_spec,
            policy=greedy_policy.GreedyPolicy(collect_policy),
            collect_policy=collect_policy,
            train_sequence_length=None,
            train_step_counter=tf.Variable(0, dtype=tf.int64, trainable=False, name="train_step"),
        )

    def set_margins(self, margin: float, outside_margin: float) -> None:
        """Set the policy's margins; see `DecisionPolicy.set_margins`."""
        self._decision_policy.set_margins(margin, outside_margin)

    def _train(
        self, experience: trajectory.Trajectory, weights: Any = None, **_: Any
    ) -> tf_agent.LossInfo:
        if not tf.executing_eagerly():
            raise RuntimeError("DecisionAgent.train: expected eager execution, found a tf.function")
        counted = _step_weights(experience)
        if weights is not None:
            counted = counted * np.broadcast_to(np.asarray(weights, np.float64), counted.shape)
        (rows,) = np.nonzero(counted.reshape(-1))
        if not len(rows):
            raise UserError("bc_max: expected rows with positive weight to learn from, found none")
        chosen = counted.reshape(-1)[rows]
        if not np.all(np.isfinite(chosen) & (chosen > 0)):
            raise ValueError("bc_max: expected weights that are finite and not negative")

        def column(values: Any) -> np.ndarray:
            return np.asarray(values).reshape(-1)[rows].astype(np.int64)

        features = np.stack(
            [column(experience.observation[name]) for name in self._feature_names], axis=1
        )
        actions = column(experience.action)
        self._model.fit(features, actions, chosen / chosen.mean(), self._config.seed)
        self.train_step_counter.assign_add(1)
        scored = rows[:: -(-len(rows) // _MAX_SCORED_ROWS)]
        return self._score(experience, scored, counted.reshape(-1)[scored], len(rows))

    def _score(
        self,
        experience: trajectory.Trajectory,
        rows: np.ndarray,
        weights: np.ndarray,
        num_rows: int,
    ) -> tf_agent.LossInfo:
        policy = to_numpy(self.policy)
        features = np.stack(
            [
                np.asarray(experience.observation[name]).reshape(-1)[rows].astype(np.int64)
                for name in policy.feature_names
            ],
            axis=1,
        )
        towards = 2 * np.asarray(experience.action).reshape(-1)[rows] - 1
        surplus = towards * policy.logits(features)
        loss = np.average(np.logaddexp(0.0, -surplus), weights=weights)
        agreement = np.average(surplus > 0, weights=weights)
        return tf_agent.LossInfo(
            tf.constant(loss, tf.float32), DecisionInfo(float(agreement), num_rows)
        )


def labelled_experience(
    names: Sequence[str],
    features: np.ndarray,
    actions: np.ndarray,
    weights: np.ndarray | None = None,
) -> tuple[trajectory.Trajectory, np.ndarray]:
    """Make experience and weights for a cloning agent's `train` from rows with known good actions.

    The rows need not come from one episode. Each becomes a step of type MID.

    Args:
      names: names of the F features.
      features: int64 [N, F].
      actions: [N], the action to clone, 0 or 1.
      weights: [N]; None for 1 each.

    Returns:
      A Trajectory [1, N], its observation a dict by feature name, and weights float64 [1, N].
    """
    num_rows = len(features)
    columns = np.ascontiguousarray(np.asarray(features, np.int64).T)
    middle = np.full((1, num_rows), ts.StepType.MID, np.int32)
    experience = trajectory.Trajectory(
        step_type=middle,
        observation={name: columns[i][np.newaxis] for i, name in enumerate(names)},
        action=np.asarray(actions, np.int64)[np.newaxis],
        policy_info=(),
        next_step_type=middle,
        reward=np.zeros((1, num_rows), np.float32),
        discount=np.ones((1, num_rows), np.float32),
    )
    row_weights = np.ones(num_rows) if weights is None else np.asarray(weights, np.float64)
    return experience, row_weights[np.newaxis]


def _step_weights(steps: trajectory.Trajectory) -> np.ndarray:
    """Return weights for cloning, float64 [B, T]: 0 on boundary steps, 1 on all others."""
    return (np.asarray(steps.step_type) != ts.StepType.LAST).astype(np.float64)


def _make_model(config: Config, num_features: int) -> decision_network.DecisionNetworks:
    return decision_network.DecisionNetworks(
        num_features,
        decision_network.NetworkSettings(
            num_models=config.num_models,
            hidden_sizes=config.hidden_sizes,
            num_knots=config.num_knots,
            epochs=config.epochs,
            batch_size=config.batch_size,
            learning_rate=config.network_learning_rate,
            weight_decay=config.weight_decay,
        ),
    )


def _check(config: Config, offered: tuple[str, ...]) -> None:
    """Raise a UserError that names the first setting that is out of its range."""
    needed = [*config.features, *filter(None, [config.baseline_feature, config.scope_feature])]
    missing = sorted(set(needed) - set(offered))
    allowed = {
        "num_models": 1 <= config.num_models <= 1000,
        "features": not missing,
        "scope_feature": bool(config.baseline_feature) or not config.scope_feature,
        "margin": abs(config.margin) <= votes.MAX_LOGIT,
        "hidden_sizes": all(
            1 <= size <= decision_network.MAX_HIDDEN_UNITS for size in config.hidden_sizes
        ),
        "num_knots": config.num_knots >= 2,
        "epochs": config.epochs >= 1,
        "batch_size": config.batch_size >= 1,
        "network_learning_rate": config.network_learning_rate > 0,
        "weight_decay": config.weight_decay >= 0,
    }
    for name, holds in allowed.items():
        if holds:
            continue
        if name == "features":
            raise UserError(
                f"bc_max: expected observations called {', '.join(missing)}, found only "
                f"{', '.join(offered)}; name others in features, baseline_feature and scope_feature"
            )
        raise UserError(
            f"bc_max: expected {name} within its range, found {getattr(config, name)!r}; "
            "see agents.bc_max.Config"
        )
