"""Choose by playing: how sure a policy must be before it departs from the default.

What single departures would save says little about a policy that makes all of them at once. So each
candidate margin is played on validation contexts, whole groups of which the policy was not fitted
to, and the default is a candidate, too.

Two margins come out. The cautious one is for the policy that is written: no validation group may
cost more than with the default. The bold one is for exploration: it saves most in the mean,
whatever single groups lose, because the departures worth trying are to be learned about next.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tfrl_systems.systems.inlining.imitation.comparison import Comparison
from tfrl_systems.systems.inlining.imitation.decision_problem import InliningProblem, Outcome
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.inlining.policy.votes import NEVER

# A smaller margin is no longer tried after this many that were no better than a larger one.
_PATIENCE = 2


class Judged(NamedTuple):
    """A policy and how it does on the validation contexts.

    Attributes:
      policy: the policy.
      comparison: its episodes there, compared with the default's.
      mean: its saving in percent, the mean over the groups.
      score: the same for a policy to be written; see `score`.
    """

    policy: CallSitePolicy
    comparison: Comparison
    mean: float
    score: float


def score(comparison: Comparison, max_loss_percent: float) -> float:
    """Return how good a policy is to be written, in percent.

    It is the mean saving over the groups. A policy with which some group costs more than the
    default, by more than `max_loss_percent`, is worse than the default: its score is then that
    group's saving, which is negative.
    """
    savings = comparison.saving_percent_by_group().values()
    if not savings:
        return 0.0
    return min(savings) if min(savings) < -max_loss_percent else statistics.fmean(savings)


class Judge:
    """Plays policies on validation contexts.

    Args:
      validation: the contexts; no policy is fitted to them. Its scope feature divides decisions
        into those of the margin and those of the outside margin; "" if all are of the margin.
      margins: candidates, in logits.
      max_loss_percent: by how much any group may cost more than with the default.
    """

    def __init__(
        self, validation: InliningProblem, margins: Sequence[float], max_loss_percent: float
    ) -> None:
        self._validation = validation
        self._margins = sorted(margins, reverse=True)
        self._max_loss_percent = max_loss_percent

    def choose(
        self, policy: CallSitePolicy, label: str, *, outside: bool
    ) -> tuple[Judged, CallSitePolicy]:
        """Choose the margins of a policy.

        The margin inside the scope is chosen first, with no departure outside; then the margin
        outside. Candidates are played from the largest down, until smaller ones stop gaining. Of
        equal ones the larger is taken.

        Args:
          policy: the policy; its own margins do not matter. Without candidates they become 0,
            wherever the policy may depart.
          label: names the policy in progress reports.
          outside: whether the policy may depart from the default outside the scope, too.

        Returns:
          The candidate with the best score, to be written; and, to explore around, the policy with
          the best mean among those that depart from the default.
        """
        if not self._margins:
            greedy = self._judge(policy.with_margins(0.0, 0.0 if outside else NEVER), label)
            return greedy, greedy.policy
        never = self._judge(policy.with_margins(NEVER), label)
        inside = self._descend(policy.with_margins, label)
        cautious = max(never, *inside, key=lambda judged: judged.score)
        bold = max(inside, key=lambda judged: judged.mean).policy
        if not (self._validation.scope_feature and outside):
            return cautious, bold
        margin = cautious.policy.margin
        further = self._descend(functools.partial(policy.with_margins, margin), label)
        cautious = max(cautious, *further, key=lambda judged: judged.score)
        outer = max(further, key=lambda judged: judged.mean).policy.outside_margin
        return cautious, policy.with_margins(bold.margin, outer)

    @functools.cached_property
    def _defaults(self) -> list[Outcome]:
        return self._validation.play_default("validation, default")

    def _judge(self, policy: CallSitePolicy, label: str) -> Judged:
        defaults = self._defaults
        played = self._validation.play(policy, f"validation, {label}")
        comparison = Comparison.of(self._validation, played, defaults)
        savings = comparison.saving_percent_by_group().values()
        mean = statistics.fmean(savings) if savings else 0.0
        return Judged(policy, comparison, mean, score(comparison, self._max_loss_percent))

    def _descend(self, make_fn: Callable[[float], CallSitePolicy], label: str) -> list[Judged]:
        """Judge candidates from the largest margin down, until the mean stops gaining."""
        candidates: list[Judged] = []
        without_gain = 0
        for margin in self._margins:
            judged = self._judge(make_fn(margin), f"{label}, margin {margin:g}")
            if candidates and judged.mean <= max(candidate.mean for candidate in candidates):
                without_gain += 1
            else:
                without_gain = 0
            candidates.append(judged)
            if without_gain == _PATIENCE:
                break
        return candidates
