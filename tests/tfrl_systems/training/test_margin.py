"""The margin of a policy whose logits are known, worked by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from tests.tfrl_systems.training.site_problem import exploration, outcome
from tfrl_systems.training import margin as margin_lib
from tfrl_systems.training.labels import Labels, advantage_labels
from tfrl_systems.training.margin import choose_margin

MARGINS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
TENTHS = 10


class Problem:
    """Features: the default's action, and the logit that every fit comes to, in tenths."""

    feature_names = ("default_action", "logit")
    baseline_feature = "default_action"
    scope_feature = ""


class Fitted:
    """A policy with the logits that the features say; stands for whatever agent there is."""

    @staticmethod
    def from_agent(agent):
        return agent

    def columns(self, names):
        return np.array([names.index("logit")])

    def logits(self, features):
        assert features.shape[1] == 1
        return features[:, 0] / TENTHS


@pytest.fixture(autouse=True)
def known_logits(monkeypatch):
    monkeypatch.setattr(margin_lib, "NumpyPolicy", Fitted)


def explored(context, *rows):
    """(the default's action, logit, Δ of the other action), played as the default has it."""
    default, logits, deltas = zip(*rows, strict=True)
    features = np.stack([default, np.rint(np.array(logits) * TENTHS)], axis=1)
    base = outcome(context, 100, default, features.astype(np.int64))
    return exploration(base, range(len(rows)), deltas)


def choose(explorations, groups, worse_share=0.04, margins=MARGINS, fit=lambda rows: Fitted()):
    labels = advantage_labels(explorations, groups)
    return choose_margin(labels, explorations, groups, fit, Problem(), margins, worse_share)


# With a margin m the policy departs where the logit is above m:
#                       logit  Δ        m = 0    0.5    1     1.5    2     3
TWO = [
    explored("a", (0, 2.5, -10), (0, 0.8, -4)),  # -14    -14   -10   -10   -10    0
    explored("b", (0, 1.2, 3), (0, 0.3, -1)),  #     +2     +3    +3     0     0     0
]  #                                    saved      12     11     7    10    10     0
GROUPS = {"a": "p", "b": "q"}


def test_what_makes_a_context_worse_does_not_count():
    # b gets worse up to 1: of two contexts none may. Of 1.5 and 2 the larger; 15 could be saved.
    assert choose(TWO, GROUPS) == (2.0, pytest.approx(10 / 15))
    assert choose(TWO, GROUPS, margins=(1.5, 3.0)) == (1.5, pytest.approx(10 / 15))


def test_what_saves_most_counts_where_contexts_may_get_worse():
    assert choose(TWO, GROUPS, worse_share=0.5) == (0.0, pytest.approx(12 / 15))


def test_the_largest_where_all_make_too_many_contexts_worse():
    chosen, predicted = choose(TWO, GROUPS, margins=(0.0, 1.0))
    assert chosen == 1.0 and math.isnan(predicted)


def test_a_default_of_1_is_kept_by_the_margin_too():
    # Here it departs where the logit is below -m: at -0.5 with a margin of 0.25, not of 0.75.
    both = [explored("a", (1, -0.5, -8), (1, 2.0, -100)), explored("b", (0, 0.0, 5))]
    assert choose(both, GROUPS, margins=(0.0, 0.25, 0.75)) == (0.25, pytest.approx(8 / 108))


def test_nothing_to_save():
    both = [explored("a", (0, -1.0, 4)), explored("b", (0, -1.0, 0))]
    assert choose(both, GROUPS) == (3.0, 0.0)


def test_one_group_cannot_be_left_out():
    chosen, predicted = choose(TWO, {"a": "p", "b": "p"})
    assert chosen == 3.0 and math.isnan(predicted)


def test_nothing_was_explored():
    nothing = exploration(outcome("a", 1, [], np.zeros((0, 2))), [], [])
    chosen, predicted = choose([nothing], GROUPS)
    assert chosen == 3.0 and math.isnan(predicted)


def test_each_group_is_left_out_of_one_fit():
    groups = {name: name.upper() for name in "abcdefg"}
    explorations = [explored(name, (0, 1.0, -1)) for name in groups]
    fitted = []

    def fit(rows: Labels):
        fitted.append(set(rows.groups))
        return Fitted()

    choose(explorations, groups, fit=fit)
    left_out = [set(groups.values()) - one for one in fitted]
    assert len(left_out) == 5
    assert sorted(name for one in left_out for name in one) == sorted(groups.values())


def test_only_departures_from_the_default_can_make_a_context_worse():
    # Around a learned policy that plays 1 against the default: going back to 0 costs 3 in b, which
    # is less saved, but nothing that is worse than the default.
    learned = explored("b", (0, -1.0, 3))
    base = dataclasses.replace(learned.base, actions=np.array([1], np.int8))
    both = [explored("a", (0, 2.5, -10)), dataclasses.replace(learned, base=base)]
    assert choose(both, GROUPS) == (2.0, pytest.approx(7 / 10))
