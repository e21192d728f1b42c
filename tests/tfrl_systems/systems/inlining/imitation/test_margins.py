"""Margins chosen by playing, on contexts whose costs are worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tfrl_systems.systems.inlining.imitation.site_problem import NAMES, SiteProblem
from tfrl_systems.systems.inlining.imitation.margins import (
    Judge,
    growth_percent,
    savings_percent,
)
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


def images_of(*sizes):
    """Images of (code, tables) under the default and under a policy, with 50 bytes of constants."""
    return [
        {
            **{"default_text_bytes": code, "default_unwind_bytes": tables},
            **{"text_bytes": new_code, "unwind_bytes": new_tables},
            **{"default_rodata_bytes": 50, "rodata_bytes": 50},
        }
        for (code, tables), (new_code, new_tables) in sizes
    ]


def test_code_may_grow_where_the_whole_shrinks_and_the_other_way_round():
    shrunk = ((100, 50), (90, 50))
    assert growth_percent(images_of(shrunk)) == pytest.approx(-5)
    assert growth_percent(images_of(shrunk, ((100, 50), (90, 62)))) == pytest.approx(1)
    assert growth_percent(images_of(shrunk, ((100, 50), (102, 40)))) == pytest.approx(2)
    assert growth_percent([]) == 0


def test_tables_count_as_the_objective_says():
    images = images_of(((100, 50), (90, 60)), ((100, 50), (100, 10)))
    assert savings_percent(images, 0.0) == pytest.approx([10, 0])
    assert savings_percent(images, 1.0) == pytest.approx([0, 20])
    assert savings_percent(images, 0.5) == pytest.approx([100 * 5 / 150, 100 * 20 / 150])


def test_the_margin_that_saves_most():
    # With 4.0 only the first gain of 8 is taken, with 2.0 and 1.0 those of 40 and 20, too; with
    # 0.5 the losses come along. Of 2.0 and 1.0, which are equal, the larger one is taken.
    chosen, *_ = judge_of(GAINS).choose(ByLogit(), "x", outside=False)
    assert (chosen.policy.margin, chosen.policy.outside_margin) == (2.0, NEVER)
    assert chosen.score == pytest.approx(100 * (48 / 1000 + 20 / 1000) / 2)


def test_where_all_departures_lose_the_default_is_taken():
    sites = {"p/a": ("p", [(13, -4), (15, -2)])}
    chosen, *_ = judge_of(sites).choose(ByLogit(), "x", outside=False)
    assert chosen.policy.margin == NEVER and chosen.score == 0


def test_where_one_group_loses_the_margin_is_only_to_explore_around():
    sites = {"p/a": ("p", [(15, 90), (13, 10)]), "q/b": ("q", [(13, -4), (11, 2)])}
    # A margin of 2.0 gains 10 of 1000 more in p than one of 4.0, and loses 4 of 1000 in q.
    chosen, _, bold = judge_of(sites).choose(ByLogit(), "x", outside=False)
    assert chosen.policy.margin == 4.0
    # At 0.5 q loses 2 only, but a loss it remains: most is saved in the mean.
    assert bold.margin == 0.5
    lenient, *_ = judge_of(sites, max_loss_percent=0.5).choose(ByLogit(), "x", outside=False)
    assert lenient.policy.margin == 0.5


def test_a_margin_by_which_code_grows_is_only_to_explore_around():
    # At 2.0 q saves 20 in all; but 30 bytes of its tables become code, which grows by 10.
    problem = SiteProblem(GAINS, moved={"q": 30})
    chosen, _, bold = Judge(problem, MARGINS, 0.1).choose(ByLogit(), "x", outside=False)
    assert (chosen.policy.margin, bold.margin) == (4.0, 2.0)
    (of_p, of_q) = chosen.images
    assert (of_p["project"], of_p["text_bytes"], of_p["default_text_bytes"]) == ("p", 992, 1000)
    assert of_q["text_bytes"] == of_q["default_text_bytes"] == 1000
    lenient, *_ = Judge(problem, MARGINS, 2.0).choose(ByLogit(), "x", outside=False)
    assert lenient.policy.margin == 2.0


def test_what_cannot_be_linked_is_judged_by_its_objects(monkeypatch):
    problem = SiteProblem(GAINS, moved={"q": 30})
    monkeypatch.setattr(problem, "link", lambda policy, label: {})
    chosen, *_ = Judge(problem, MARGINS, 0.1).choose(ByLogit(), "x", outside=False)
    assert (chosen.policy.margin, chosen.images) == (2.0, ())


def test_outside_the_scope_another_margin_is_chosen():
    sites = {"p/a": ("p", [(15, 8), (13, 21), (12, -5), (13, 40)])}  # odd gains are outside
    judge = judge_of(sites, scope_feature="scope")
    chosen, _, bold = judge.choose(ByLogit(), "x", outside=True)
    assert (chosen.policy.margin, chosen.policy.outside_margin) == (2.0, 2.0)
    assert (bold.margin, bold.outside_margin) == (2.0, 2.0)
    inside_only, _, bold = judge.choose(ByLogit(), "x", outside=False)
    assert bold.outside_margin == NEVER
    assert (inside_only.policy.margin, inside_only.policy.outside_margin) == (2.0, NEVER)
