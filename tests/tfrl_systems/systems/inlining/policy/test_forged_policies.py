"""A policy's files may come from a stranger: what no training writes is refused in one line."""

from __future__ import annotations

import numpy as np
import pytest

from environments.errors import UserError
from tests.tfrl_systems.systems.inlining.constant_policy import write_constant_policy
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy


def load(tmp_path, **changed):
    fields = {"logit": 1.0, "margin": 0.5, **changed}
    return CallSitePolicy.load(write_constant_policy(tmp_path / "policy", **fields))


@pytest.mark.parametrize(
    "changed",
    [
        # Fields of other types,
        {"num_models": True},
        {"num_models": 10**9},
        {"features": "cost_estimate"},
        {"features": [None]},
        {"baseline_feature": 1},
        {"margin": "0.5"},
        {"margin": 1e30},
        {"outside_margin": True},
        # arrays that are missing,
        {"run": None},
        {"weights_0": None},
        # knots of another feature, bases of other knots, fractions for knots,
        {"start": [[0]] * 2},
        {"base": [[0, 1, 2]]},
        {"rise": [[0.5]]},
        # weights of another layer, a bias for nobody, and members that are none.
        {"weights_0": [[[1.0]] * 3]},
        {"biases_0": [[[0.0, 0.0]]]},
        {"weights_0": np.zeros((0, 1, 1))},
    ],
    ids=str,
)
def test_parts_that_do_not_fit(tmp_path, changed):
    with pytest.raises(UserError, match="expected a policy whose files fit each other, found"):
        load(tmp_path, **changed)


def test_numbers_that_are_not_finite(tmp_path):
    with pytest.raises(UserError, match="weights_0: numbers that are not finite"):
        load(tmp_path, weights_0=np.full((1, 1, 1), np.inf))


def test_the_right_one_decides(tmp_path):
    """Its logit is 1, above the margin."""
    decide = load(tmp_path).begin("m", ("inlining_default", "cost_estimate"))
    assert decide(np.array([[0, 1], [1, 1]]), 0).tolist() == [1, 1]
