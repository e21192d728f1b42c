"""The learning step of BC-Max: fit decision networks to labelled decisions.

T. V. Marinov, A. Agarwal, M. Trofin: Scalable RL for Systems via Offline Imitation from Multiple
Baselines: A Case Study in Compiler Optimization (2024), Algorithm 1, line 7 (the same line in
Algorithm 4): a weighted cross-entropy over state-action pairs,

    min over π of  - Σ_j w_j Σ_h log π(a_{j,h} | s_{j,h}),

The paper prints this with a factor a_{j,h} before the logarithm, which would drop every action 0.
Equation (2), which counts other actions instead, has no such factor, and neither has this code.
`agents.bc_max` minimises the same loss step by step, with the policy of any system. Here an
ensemble is fitted anew each time, whose decisions are the same in TensorFlow, NumPy and C++, so
that compiles can be repeated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from environments.errors import UserError
from tfrl_systems.systems.inlining.policy import decision_network, votes
from tfrl_systems.systems.inlining.policy.decision_policy import DecisionPolicy, to_numpy

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


def check(config: Config, names: Sequence[str]) -> None:
    """Refuse settings that are out of their range, or need features other than `names`.

    Raises:
      UserError: names the first such setting.
    """
    needed = [*config.features, *filter(None, [config.baseline_feature, config.scope_feature])]
    if missing := sorted(set(needed) - set(names)):
        raise UserError(
            f"bc_max: expected observations called {', '.join(missing)}, found only "
            f"{', '.join(names)}; name others in features, baseline_feature and scope_feature"
        )
    ranges = {
        "num_models": 1 <= config.num_models <= 1000,
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
    for name, holds in ranges.items():
        if not holds:
            raise UserError(
                f"bc_max: expected {name} within its range, found {getattr(config, name)!r}; "
                "see agents.bc_max.Config"
            )


def make_policy(config: Config, names: Sequence[str]) -> DecisionPolicy:
    """Make a policy that was not fitted to anything; `names` are those of all features."""
    features = config.features or tuple(sorted(names))
    return DecisionPolicy(
        names,
        decision_network.DecisionNetworks(
            len(features), config.num_models, config.hidden_sizes, config.num_knots
        ),
        features,
        config.baseline_feature,
        config.scope_feature,
        config.margin,
        dataclasses.asdict(config),
    )


def fit(
    config: Config,
    names: Sequence[str],
    features: np.ndarray,
    actions: np.ndarray,
    weights: np.ndarray | None = None,
) -> DecisionPolicy:
    """Fit a policy to decisions; only the arguments decide the result.

    Args:
      config: settings of the policy and of the fit.
      names: names of the F features.
      features: int64 [N, F].
      actions: [N], the action to clone, 0 or 1.
      weights: float64 [N], not negative; None for 1 each.

    Raises:
      UserError: no row has a weight, or some weight cannot be used.
    """
    policy = make_policy(config, names)
    weights = np.ones(len(actions)) if weights is None else weights
    if not (weights > 0).any():
        raise UserError("bc_max: expected rows with positive weight to learn from, found none")
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise UserError(
            "bc_max: expected weights that are finite and not negative, found others; correct "
            "imitation_scale or clip_cost"
        )
    rows = np.flatnonzero(weights)
    places = [names.index(name) for name in config.features or sorted(names)]
    policy.model.fit(
        features[rows][:, places],
        actions[rows].astype(np.int64),
        weights[rows] / weights[rows].mean(),
        config.seed,
        epochs=config.epochs,
        batch_size=config.batch_size,
        learning_rate=config.network_learning_rate,
        weight_decay=config.weight_decay,
    )
    return policy


def loss_and_agreement(
    policy: DecisionPolicy,
    names: Sequence[str],
    features: np.ndarray,
    actions: np.ndarray,
    weights: np.ndarray,
) -> tuple[float, float]:
    """Return the loss of some rows, and the weighted share of them whose action a policy takes."""
    twin = to_numpy(policy)
    rows = np.flatnonzero(weights)
    rows = rows[:: -(-len(rows) // _MAX_SCORED_ROWS)]
    logits = twin.logits(features[rows][:, twin.columns(names)])
    surplus = (2 * actions[rows] - 1) * logits
    loss = np.average(np.logaddexp(0.0, -surplus), weights=weights[rows])
    return float(np.float32(loss)), float(np.average(surplus > 0, weights=weights[rows]))
