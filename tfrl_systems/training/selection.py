"""Choose by playing: how sure a policy must be before it departs from the default.

What single departures would save says little about a policy that makes all of them at once. So each
candidate margin is played on validation contexts, whole groups of which the policy was not fitted
to, and the default is a candidate, too.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence

from tfrl_systems.networks.votes import NEVER
from tfrl_systems.policies.numpy_policy import NumpyPolicy
from tfrl_systems.training.decisions import DecisionProblem, Outcome
from tfrl_systems.training.evaluation import Comparison

# A smaller margin is no longer tried after this many that were no better than a larger one.
_PATIENCE = 2


@dataclasses.dataclass(frozen=True)
class Judged:
    """A policy and how it does on the validation contexts.

    Attributes:
      policy: the policy.
      comparison: its episodes there, compared with the default's.
      score: see `score`.
    """

    policy: NumpyPolicy
    comparison: Comparison
    score: float


def score(comparison: Comparison, max_loss_percent: float) -> float:
    """Return how good a policy is: its saving in percent, the mean over the groups.

    A policy with which some group costs more than the default, by more than `max_loss_percent`, is
    worse than the default: its score is then that group's saving, which is negative.
    """
    savings = comparison.saving_percent_by_group().values()
    if not savings:
        return 0.0
    return min(savings) if min(savings) < -max_loss_percent else statistics.fmean(savings)


class Judge:
    """Plays policies on validation contexts.

    Args:
      validation: the contexts; no policy is fitted to them.
      margins: candidates, in logits.
      max_loss_percent: by how much any group may cost more than with the default.
      scope_feature: name of the feature that divides decisions into those of the margin and those
        of the outside margin; "" if all are of the margin.
    """

    def __init__(
        self,
        validation: DecisionProblem,
        margins: Sequence[float],
        max_loss_percent: float,
        scope_feature: str,
    ) -> None:
        self._validation = validation
        self._margins = sorted(margins, reverse=True)
        self._max_loss_percent = max_loss_percent
        self._scope_feature = scope_feature
        self._defaults: Sequence[Outcome] | None = None

    def choose(self, policy: NumpyPolicy, label: str, *, outside: bool) -> Judged:
        """Choose the margins of a policy.

        The margin inside the scope is chosen first, with no departure outside; then the margin
        outside. Candidates are played from the largest down, until smaller ones stop gaining.

        Args:
          policy: the policy; its own margins do not matter.
          label: names the policy in progress reports.
          outside: whether the policy may depart from the default outside the scope, too.

        Returns:
          The policy with the margins that score best; of equals the larger ones.
        """
        never = self.judge(policy.with_margins(NEVER), label)
        best = self._descend(never, lambda margin: policy.with_margins(margin), label)
        if not (self._scope_feature and outside):
            return best
        inside = best.policy.margin
        return self._descend(best, lambda margin: policy.with_margins(inside, margin), label)

    def judge(self, policy: NumpyPolicy, label: str) -> Judged:
        """Play a policy on the validation contexts and score it."""
        if self._defaults is None:
            self._defaults = self._validation.play_default("validation, default")
        played = self._validation.play(policy, f"validation, {label}")
        found = Comparison.of(self._validation, played, self._defaults)
        return Judged(policy, found, score(found, self._max_loss_percent))

    def _descend(self, best: Judged, make_fn: Callable[[float], NumpyPolicy], label: str) -> Judged:
        without_gain = 0
        for margin in self._margins:
            judged = self.judge(make_fn(margin), f"{label}, margin {margin:g}")
            if judged.score > best.score:
                best, without_gain = judged, 0
            elif judged.comparison.num_changed.sum() > best.comparison.num_changed.sum():
                without_gain += 1  # It departs more often and gains nothing by it.
            if without_gain == _PATIENCE:
                break
        return best
