"""Margins chosen by playing, on contexts whose costs are worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tfrl_systems.systems.inlining.imitation.site_problem import NAMES, SiteProblem
from tfrl_systems.systems.inlining.imitation.comparison import Comparison
from tfrl_systems.systems.inlining.imitation.margins import Judge, score
from tfrl_systems.systems.inlining.policy.votes import NEVER

MARGINS = (0.5, 1.0, 2.0, 4.0)
# Sites (size, gain). The default plays 0 at all of them, because no size is below 5. The policy's
# logit is size - 10, so with a margin m it plays 1 at sizes above 10 + m.
GAINS = {"p/a": ("p", [(15, 8), (13, 40), (11, -4)]), "q/b": ("q", [(13, 20), (11, -4)])}


class ByLogit:
    """A policy whose logit is a feature less ten; outside the scope, where the gain is odd."""

    def __init__(self, margin=0.0, outside_margin=NEVER):
        self.margin, self.outside_margin = margin, outside_margin
        self.name = self.fingerprint = f"{margin} {outside_margin}"

    def with_margins(self, margin, outside_margin=NEVER):
        return ByLogit(margin, outside_margin)

    def begin(self, module_name, names):
        def decide(features, first):
            is_outside = features[:, NAMES.index("gain")] % 2 == 1
            margin = np.where(is_outside, self.outside_margin, self.margin)
            return (features[:, 0] - 10 > margin).astype(np.int8)

        return decide


def judge_of(sites, scope_feature="", max_loss_percent=0.1):
    problem = SiteProblem(sites)
    problem.scope_feature = scope_feature
    return Judge(problem, MARGINS, max_loss_percent)


def compare(costs, default_costs):
    count = np.zeros(len(costs), np.int64)
    groups = tuple("abc"[: len(costs)])
    return Comparison(groups, np.array(costs), np.array(default_costs), count, count)


def test_the_score_is_the_mean_over_groups_unless_one_of_them_loses():
    assert score(compare([90.0, 80.0], [100.0, 100.0]), 0.1) == pytest.approx(15)
    assert score(compare([50.0, 100.05], [100.0, 100.0]), 0.1) == pytest.approx((50 - 0.05) / 2)
    assert score(compare([50.0, 101.0], [100.0, 100.0]), 0.1) == pytest.approx(-1)
    assert score(compare([], []), 0.1) == 0


def test_the_margin_that_saves_most():
    # With 4.0 only the first gain of 8 is taken, with 2.0 and 1.0 those of 40 and 20, too; with
    # 0.5 the losses come along. Of 2.0 and 1.0, which are equal, the larger one is taken.
    chosen, _ = judge_of(GAINS).choose(ByLogit(), "x", outside=False)
    assert (chosen.policy.margin, chosen.policy.outside_margin) == (2.0, NEVER)
    assert chosen.score == pytest.approx(100 * (48 / 1000 + 20 / 1000) / 2)


def test_where_all_departures_lose_the_default_is_taken():
    sites = {"p/a": ("p", [(13, -4), (15, -2)])}
    chosen, _ = judge_of(sites).choose(ByLogit(), "x", outside=False)
    assert chosen.policy.margin == NEVER and chosen.score == 0


def test_where_one_group_loses_the_margin_is_only_to_explore_around():
    sites = {"p/a": ("p", [(15, 90), (13, 10)]), "q/b": ("q", [(13, -4), (11, 2)])}
    # A margin of 2.0 gains 10 of 1000 more in p than one of 4.0, and loses 4 of 1000 in q.
    chosen, bold = judge_of(sites).choose(ByLogit(), "x", outside=False)
    assert chosen.policy.margin == 4.0
    # At 0.5 q loses 2 only, but a loss it remains: most is saved in the mean.
    assert bold.margin == 0.5
    lenient, _ = judge_of(sites, max_loss_percent=0.5).choose(ByLogit(), "x", outside=False)
    assert lenient.policy.margin == 0.5


def test_outside_the_scope_another_margin_is_chosen():
    sites = {"p/a": ("p", [(15, 8), (13, 21), (12, -5), (13, 40)])}  # odd gains are outside
    judge = judge_of(sites, scope_feature="scope")
    chosen, bold = judge.choose(ByLogit(), "x", outside=True)
    assert (chosen.policy.margin, chosen.policy.outside_margin) == (2.0, 2.0)
    assert (bold.margin, bold.outside_margin) == (2.0, 2.0)
    inside_only, bold = judge.choose(ByLogit(), "x", outside=False)
    assert bold.outside_margin == NEVER
    assert (inside_only.policy.margin, inside_only.policy.outside_margin) == (2.0, NEVER)
