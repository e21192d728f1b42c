"""Choice of the margin: how sure a policy must be before it departs from the default."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.model_selection import GroupKFold

from tfrl_systems.policies.numpy_policy import NumpyPolicy
from tfrl_systems.training.decisions import DecisionProblem, Exploration
from tfrl_systems.training.labels import Labels

_NUM_FOLDS = 5


def choose_margin(
    labels: Labels,
    explorations: Sequence[Exploration],
    group_of: Mapping[str, str],
    fit: Callable[[Labels], Any],
    problem: DecisionProblem,
    margins: Sequence[float],
    worse_share: float,
) -> tuple[float, float]:
    """Return the margin with which a policy saves most in groups that it was not fitted to.

    The choice is a cross-validation over groups. For each fold, a policy is fitted without the
    fold's groups. The explored actions in these groups, whose Δcost is known, then tell what the
    policy's decisions would have saved there. A margin is rejected if, with it, departures from the
    default would make too many contexts worse. If all margins are rejected, or if there is only one
    group, the largest margin is returned.

    Args:
      labels: all rows to fit to.
      explorations: explorations, whose explored actions have a known Δcost.
      group_of: the group of each context.
      fit: makes an agent with margin 0 from rows.
      problem: the problem, for the names of its features.
      margins: candidates, in logits; ties go to the largest.
      worse_share: the largest share of the contexts that may get worse.

    Returns:
      The margin, and its saving as a share of what the best actions would save; this share is NaN
      if no margin could be compared.
    """
    features = np.concatenate([one.base.features[one.steps] for one in explorations])
    played = np.concatenate([one.base.actions[one.steps] for one in explorations])
    deltas = np.concatenate([one.deltas for one in explorations])
    contexts = np.concatenate([np.full(len(one.steps), one.base.context) for one in explorations])
    groups = np.array([group_of[context] for context in contexts])
    num_folds = min(_NUM_FOLDS, len(set(groups)))
    if num_folds < 2:
        return max(margins), float("nan")
    logits = np.zeros(len(deltas))
    for _, chosen in GroupKFold(num_folds).split(features, groups=groups):
        left_out = np.unique(groups[chosen])
        rows = labels.where(~np.isin(labels.groups, left_out))
        policy = NumpyPolicy.from_agent(fit(rows))
        columns = policy.columns(problem.feature_names)
        logits[chosen] = policy.logits(features[chosen][:, columns])
    default = features[:, problem.feature_names.index(problem.baseline_feature)]
    towards = np.where(default > 0, 1.0, -1.0)
    around_default = played == default
    allowed = worse_share * len({one.base.context for one in explorations})
    saved: dict[float, float] = {}
    for margin in margins:
        actions = (logits + margin * towards > 0).astype(played.dtype)
        differs = actions != played
        departs = differs & around_default
        _, place = np.unique(contexts[departs], return_inverse=True)
        if np.sum(np.bincount(place, weights=deltas[departs]) > 0) <= allowed:
            saved[margin] = -float(np.sum(deltas[differs]))
    if not saved:
        return max(margins), float("nan")
    chosen_margin = max(saved, key=lambda margin: (saved[margin], margin))
    available = -float(np.sum(deltas[deltas < 0]))
    return chosen_margin, saved[chosen_margin] / available if available else 0.0
