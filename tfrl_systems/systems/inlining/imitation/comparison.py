"""Comparison of a policy with the default on some contexts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from environments.inlining.heuristics import Policy
from tfrl_systems.systems.inlining.imitation.decision_problem import InliningProblem, Outcome


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
        problem: InliningProblem,
        outcomes: Iterable[Outcome],
        default_outcomes: Iterable[Outcome],
    ) -> Comparison:
        """Compare two policies' outcomes in the contexts of `problem` that both have."""
        column = problem.feature_names.index(problem.baseline_feature)
        default_cost = {outcome.context: outcome.cost for outcome in default_outcomes}
        played = [outcome for outcome in outcomes if outcome.context in default_cost]
        changed = [
            int(np.sum(outcome.features[:, column] != outcome.actions)) for outcome in played
        ]
        return cls(
            groups=tuple(problem.group_of[outcome.context] for outcome in played),
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
        names, places = np.unique(self.groups, return_inverse=True)
        sums = (np.bincount(places, column).tolist() for column in (self.default_costs, self.costs))
        return {
            name: saving_percent(*costs) for name, *costs in zip(names.tolist(), *sums, strict=True)
        }

    def to_json(self) -> dict[str, Any]:
        """Return the totals as JSON values; costs are sums over the contexts."""
        return {
            "contexts": len(self.groups),
            "cost": self.costs.sum().item(),
            "default_cost": self.default_costs.sum().item(),
            "worse": self.worse,
            "changed": self.changed,
            "saving_percent": self.saving_percent,
            "saving_percent_by_group": self.saving_percent_by_group(),
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


def evaluate(problem: InliningProblem, policy: Policy, label: str) -> Comparison:
    """Play `policy` and the default in all contexts of `problem`, and compare them.

    Progress reports show `label`.
    """
    of_default = problem.play_default(f"{label}, default")
    played = problem.play(policy, f"{label}, {policy.name}")
    return Comparison.of(problem, played, of_default)


def saving_percent(default_cost: float, cost: float) -> float:
    """Return how much less `cost` is than `default_cost`, in percent; 0 if the latter is 0."""
    return 100 * (1 - cost / default_cost) if default_cost else 0.0
