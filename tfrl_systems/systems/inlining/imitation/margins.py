"""Choose by linking: how sure a policy must be before it departs from the default.

What single departures would save says little about a policy that makes all of them at once. So with
each candidate margin the objects of validation projects, which the policy was not fitted to, are
compiled and linked as people link who care for size. The default is a candidate, too.

Two margins come out. The cautious one is for the policy that is written: in no project may the
linked code have grown, nor all that is loaded. The bold one is for exploration: it saves most in
the mean, whatever single projects lose, because the departures worth trying are to be learned about
next.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from environments.inlining.linking.images import LOADED_PARTS, ImageSize
from tfrl_systems.systems.inlining.imitation.comparison import Comparison, saving_percent
from tfrl_systems.systems.inlining.imitation.decision_problem import InliningProblem, Outcome
from tfrl_systems.systems.inlining.linking import images_json
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.inlining.policy.votes import NEVER

# A smaller margin is no longer tried after this many that were no better than a larger one.
_PATIENCE = 2
Images = Sequence[Mapping[str, Any]]
"""Linked images beside the default's; see `linking.images_json`."""


class Judged(NamedTuple):
    """A policy and what it makes of the validation projects.

    Attributes:
      policy: the policy.
      mean: its saving in percent, the mean over the projects.
      score: the same for a policy to be written; see `score`.
      images: the projects' images; none where nothing was linked.
    """

    policy: CallSitePolicy
    mean: float
    score: float
    images: Images = ()


class Chosen(NamedTuple):
    """The margins of a policy.

    Attributes:
      judged: the policy with the best score, to be written.
      comparison: its episodes on the validation contexts, compared with the default's.
      bold: the policy with the best mean among those that depart from the default, to explore
        around.
    """

    judged: Judged
    comparison: Comparison
    bold: CallSitePolicy


def score(mean: float, growth: float, max_loss_percent: float) -> float:
    """Return how good a policy is to be written, in percent.

    It is the mean saving over the projects. A policy with which some project grows by more than
    `max_loss_percent` is worse than the default: its score is then that growth, below 0.
    """
    return -growth if growth > max_loss_percent else mean


def savings_percent(images: Images, table_weight: float) -> list[float]:
    """Return what each image saves, in percent, where a byte of tables counts `table_weight`."""
    weights = dict.fromkeys(LOADED_PARTS, table_weight) | {LOADED_PARTS[0]: 1.0}

    def size(image: Mapping[str, Any], whose: str) -> float:
        return sum(weight * image[f"{whose}{part}"] for part, weight in weights.items())

    return [saving_percent(size(image, "default_"), size(image, "")) for image in images]


def growth_percent(images: Images) -> float:
    """Return by how much the code of an image, or all that it loads, has grown at most."""
    of_code, of_all = (savings_percent(images, table_weight) for table_weight in (0.0, 1.0))
    return -min([*of_code, *of_all], default=0.0)


class Judge:
    """Links validation projects under policies.

    Args:
      validation: the projects' modules; no policy is fitted to them. Its scope feature divides
        decisions into those of the margin and those of the outside margin; "" if all are of the
        margin.
      margins: candidates, in logits.
      max_loss_percent: by how much any project may grow.
    """

    def __init__(
        self, validation: InliningProblem, margins: Sequence[float], max_loss_percent: float
    ) -> None:
        self._validation = validation
        self._margins = sorted(margins, reverse=True)
        self._max_loss_percent = max_loss_percent

    def choose(self, policy: CallSitePolicy, label: str, *, outside: bool) -> Chosen:
        """Choose the margins of a policy.

        The margin inside the scope is chosen first, with no departure outside; then the margin
        outside. Candidates are tried from the largest down, until smaller ones stop gaining. Of
        equal ones the larger is taken.

        Args:
          policy: the policy; its own margins do not matter. Without candidates they become 0,
            wherever the policy may depart, and nothing is linked.
          label: names the policy in progress reports.
          outside: whether the policy may depart from the default outside the scope, too.
        """
        if not self._margins:
            greedy = policy.with_margins(0.0, 0.0 if outside else NEVER)
            comparison = self._compare(greedy, label)
            return Chosen(self._by_objects(greedy, comparison), comparison, greedy)
        never = Judged(policy.with_margins(NEVER), 0.0, 0.0)
        inside = self._descend(policy.with_margins, label)
        cautious = max(never, *inside, key=lambda judged: judged.score)
        bold = max(inside, key=lambda judged: judged.mean).policy
        if self._validation.scope_feature and outside:
            make_fn = functools.partial(policy.with_margins, cautious.policy.margin)
            further = self._descend(make_fn, label)
            cautious = max(cautious, *further, key=lambda judged: judged.score)
            outer = max(further, key=lambda judged: judged.mean).policy.outside_margin
            bold = policy.with_margins(bold.margin, outer)
        return Chosen(cautious, self._compare(cautious.policy, label), bold)

    @functools.cached_property
    def _defaults(self) -> list[Outcome]:
        return self._validation.play_default("validation, default")

    @functools.cached_property
    def _default_images(self) -> dict[str, ImageSize]:
        default = self._validation.baseline("default")
        return self._validation.link(default, "validation, default, linked")

    def _compare(self, policy: CallSitePolicy, label: str) -> Comparison:
        defaults = self._defaults
        played = self._validation.play(policy, f"validation, {label}")
        return Comparison.of(self._validation, played, defaults)

    def _by_objects(self, policy: CallSitePolicy, comparison: Comparison) -> Judged:
        """Judge by what the objects are worth, where nothing is or can be linked."""
        savings = list(comparison.saving_percent_by_group().values())
        mean = statistics.fmean(savings) if savings else 0.0
        growth = -min(savings, default=0.0)
        return Judged(policy, mean, score(mean, growth, self._max_loss_percent))

    def _judge(self, policy: CallSitePolicy, label: str) -> Judged:
        linked = self._validation.link(policy, f"validation, {label}, linked")
        images = images_json(linked, self._default_images)
        if not images:
            return self._by_objects(policy, self._compare(policy, label))
        mean = statistics.fmean(savings_percent(images, self._validation.table_weight))
        growth = growth_percent(images)
        return Judged(policy, mean, score(mean, growth, self._max_loss_percent), images)

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
