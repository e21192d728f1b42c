"""Comparison of a policy with the default on some contexts."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from tfrl_systems.systems.inlining.imitation.outcomes import DecisionProblem, Outcome, Policy


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A policy's episodes beside the default's, in the N contexts that both could be played in.

    Attributes:
      groups: N names, the group of each context.
      costs: float64 [N], costs of the policy.
      default_costs: float64 [N], costs of the default.
      num_changed: int64 [N], number of the policy's decisions that differ from the default's.
      num_decisions: int64 [N], number of all of the policy's decisions.
    """

    groups: tuple[str, ...]
    costs: np.ndarray
    default_costs: np.ndarray
    num_changed: np.ndarray
    num_decisions: np.ndarray

    @classmethod
    def of(
        cls,
        problem: DecisionProblem,
        outcomes: Iterable[Outcome],
        default_outcomes: Iterable[Outcome],
    ) -> Comparison:
        """Compare two policies' outcomes in the contexts of `problem` that both have."""
        group_of = dict(zip(problem.contexts, problem.groups, strict=True))
        column = problem.feature_names.index(problem.baseline_feature)
        default_cost = {outcome.context: outcome.cost for outcome in default_outcomes}
        played = [outcome for outcome in outcomes if outcome.context in default_cost]
        changed = [
            int(np.sum(outcome.features[:, column] != outcome.actions)) for outcome in played
        ]
        return cls(
            groups=tuple(group_of[outcome.context] for outcome in played),
            costs=np.array([outcome.cost for outcome in played], np.float64),
            default_costs=np.array(
                [default_cost[outcome.context] for outcome in played], np.float64
            ),
            num_changed=np.array(changed, np.int64),
            num_decisions=np.array([len(outcome.actions) for outcome in played], np.int64),
        )

    @property
    def worse(self) -> int:
        """Return the number of contexts in which the policy costs more than the default."""
        return int(np.sum(self.costs > self.default_costs))

    @property
    def changed(self) -> float:
        """Return the share of the policy's decisions that differ from the default's."""
        return int(self.num_changed.sum()) / max(int(self.num_decisions.sum()), 1)

    @property
    def saving_percent(self) -> float:
        """Return how much less than the default the policy costs in all contexts, in percent."""
        return saving_percent(float(self.default_costs.sum()), float(self.costs.sum()))

    def saving_percent_by_group(self) -> dict[str, float]:
        """Return the saving in the contexts of each group, in percent; groups sorted by name."""
        costs: dict[str, float] = collections.defaultdict(float)
        default_costs: dict[str, float] = collections.defaultdict(float)
        for group, cost, default_cost in zip(
            self.groups, self.costs.tolist(), self.default_costs.tolist(), strict=True
        ):
            costs[group] += cost
            default_costs[group] += default_cost
        return {
            group: saving_percent(default_costs[group], costs[group]) for group in sorted(costs)
        }

    def curves(self) -> dict[str, float | np.ndarray]:
        """Return TensorBoard's values: totals, each group's saving, histograms over contexts."""
        by_group = self.saving_percent_by_group()
        decided = self.num_decisions > 0
        pairs = zip(self.default_costs.tolist(), self.costs.tolist(), strict=True)
        return {
            "saving_percent": self.saving_percent,
            **{f"saving_percent_by_group/{group}": value for group, value in by_group.items()},
            "contexts_worse": float(self.worse),
            "share_of_decisions_changed": self.changed,
            "histogram/saving_percent": np.array([saving_percent(*pair) for pair in pairs]),
            "histogram/share_of_decisions_changed": (
                self.num_changed[decided] / self.num_decisions[decided]
            ),
        }


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A policy's name and its comparison with the default."""

    policy: str
    comparison: Comparison

    def to_json(self) -> dict[str, Any]:
        """Return the totals as JSON values; costs are sums over the contexts."""
        comparison = self.comparison
        return {
            "policy": self.policy,
            "contexts": len(comparison.groups),
            "cost": comparison.costs.sum().item(),
            "default_cost": comparison.default_costs.sum().item(),
            "worse": comparison.worse,
            "changed": comparison.changed,
            "saving_percent": comparison.saving_percent,
            "saving_percent_by_group": comparison.saving_percent_by_group(),
        }


def evaluate(problem: DecisionProblem, policy: Policy, label: str) -> Evaluation:
    """Play `policy` and the default in all contexts of `problem`, and compare them.

    Args:
      problem: contexts to decide in.
      policy: the policy to evaluate.
      label: name that progress reports show.

    Returns:
      The policy's name and the comparison.
    """
    of_default = problem.play_default(f"{label}, default")
    played = problem.play(policy, f"{label}, {policy.name}")
    return Evaluation(policy.name, Comparison.of(problem, played, of_default))


def saving_percent(default_cost: float, cost: float) -> float:
    """Return how much less `cost` is than `default_cost`, in percent; 0 if the latter is 0."""
    return 100 * (1 - cost / default_cost) if default_cost else 0.0
