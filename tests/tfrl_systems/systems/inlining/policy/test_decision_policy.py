"""A policy departs from the baseline where it is sure, whatever the shape of what it sees."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from tests.tfrl_systems.systems.inlining import decision_rows
from tests.tfrl_systems.systems.inlining.decision_rows import LOGIT_STEP, NAMES
from tfrl_systems.systems.inlining.policy import votes
from tfrl_systems.systems.inlining.policy.decision_policy import to_numpy


@pytest.mark.parametrize(
    "margin, default, logit_steps, action",
    [
        # Two members: a margin of ½ is reached by votes of 2 * ½ = 1, and passed one step later.
        (0.5, 0, votes.ONE, 0),
        (0.5, 0, votes.ONE + LOGIT_STEP, 1),
        (0.5, 1, -votes.ONE, 1),
        (0.5, 1, -votes.ONE - LOGIT_STEP, 0),
        (0.0, 1, 0, 1),
        (-0.5, 1, votes.ONE, 1),
        (-0.5, 1, votes.ONE - LOGIT_STEP, 0),
        # Without a baseline the margin does not count, and a tie is no.
        (3.0, None, 0, 0),
        (3.0, None, LOGIT_STEP, 1),
    ],
)
def test_departs_from_the_baseline_only_beyond_the_margin(margin, default, logit_steps, action):
    baseline = {"baseline_feature": ""} if default is None else {}
    policy = decision_rows.make_policy(margin=margin, num_models=2, **baseline)
    decision_rows.answer(policy, logit_steps)
    rows = np.array([[100, default or 0, 0, 0, 0]])
    assert decision_rows.decide(policy, rows).tolist() == [action]


def test_observations_of_any_outer_shape():
    policy = decision_rows.trained()
    rows = decision_rows.draw(6, 8)
    expected = policy.logits(decision_rows.time_steps(rows).observation)
    assert expected.shape == (6, 2)
    grid = {name: tf.reshape(rows[:, i], [2, 3]) for i, name in enumerate(NAMES)}
    np.testing.assert_array_equal(policy.logits(grid), tf.reshape(expected, [2, 3, 2]))
    single = ts.restart({name: tf.constant(rows[0, i]) for i, name in enumerate(NAMES)})
    assert decision_rows.greedy().action(single).action.shape == ()


def test_later_changes_do_not_reach_a_twin():
    policy = decision_rows.make_policy(baseline_feature="")
    twin, rows = to_numpy(policy), decision_rows.draw(3, 17)
    decision_rows.answer(policy, votes.ONE)
    assert twin.begin("m", NAMES)(rows, 0).tolist() == [0, 0, 0]
    assert decision_rows.decide(policy, rows).tolist() == [1, 1, 1]
