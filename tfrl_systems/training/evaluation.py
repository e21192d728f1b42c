"""How a policy compares with the default on some contexts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfrl_systems.training.decisions import DecisionProblem, Outcome, Policy


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A policy against the default; costs are sums over the contexts.

    Attributes:
      policy: its name.
      contexts: how many both could be played in.
      cost: of the policy.
      default_cost: of the default.
      worse: contexts in which the policy costs more.
      changed: share of the policy's decisions that are not the default's.
    """

    policy: str
    contexts: int
    cost: float
    default_cost: float
    worse: int
    changed: float

    @property
    def saving_percent(self) -> float:
        """How much less than the default the policy costs; 0 where there is nothing to save."""
        return 100 * (1 - self.cost / self.default_cost) if self.default_cost else 0.0

    def to_json(self) -> dict[str, Any]:
        """The fields and the saving."""
        return {**dataclasses.asdict(self), "saving_percent": self.saving_percent}


def evaluate(problem: DecisionProblem, policy: Policy, default: Policy, label: str) -> Evaluation:
    """Plays `policy` and `default` in all contexts of `problem`.

    Args:
      problem: contexts to decide in.
      policy: what to evaluate.
      default: what to compare it with.
      label: for progress.
    """
    of_default = {one.context: one for one in problem.play(default, f"{label}, {default.name}")}
    played = [
        one for one in problem.play(policy, f"{label}, {policy.name}") if one.context in of_default
    ]
    column = problem.feature_names.index(problem.baseline_feature)
    return Evaluation(
        policy=policy.name,
        contexts=len(played),
        cost=sum(one.cost for one in played),
        default_cost=sum(of_default[one.context].cost for one in played),
        worse=sum(one.cost > of_default[one.context].cost for one in played),
        changed=_changed_share(played, column),
    )


def _changed_share(outcomes: Sequence[Outcome], column: int) -> float:
    changed = sum(int(np.sum(one.features[:, column] != one.actions)) for one in outcomes)
    return changed / max(sum(len(one.actions) for one in outcomes), 1)
