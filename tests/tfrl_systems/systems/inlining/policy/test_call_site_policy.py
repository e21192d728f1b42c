"""The NumPy policy decides as the TensorFlow policy does, whatever the batch, and fast."""

from __future__ import annotations

import numpy as np
import pytest

from environments.errors import UserError
from tests.tfrl_systems.systems.inlining import decision_rows
from tests.tfrl_systems.systems.inlining.decision_rows import NAMES
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.inlining.policy.decision_policy import to_numpy


def test_logits_are_tensorflows():
    fitted = decision_rows.trained()
    policy = to_numpy(fitted)
    rows = np.concatenate([decision_rows.draw(5000, 13), decision_rows.wild(500, 12)])
    decisions = decision_rows.decide(fitted, rows)
    assert 0.2 < decisions.mean() < 0.8
    assert 0 < np.mean(decisions != rows[:, 1]) < 0.5
    needed = rows[:, policy.columns(NAMES)]
    expected = fitted.logits(decision_rows.time_steps(rows).observation)
    np.testing.assert_array_equal(
        policy.logits(needed).astype(np.float32), expected[:, 1] - expected[:, 0]
    )
    assert policy.logits(needed[:0]).shape == (0,)
    distribution = fitted.distribution(decision_rows.time_steps(rows)).action
    np.testing.assert_allclose(
        policy.probabilities(needed), distribution.probs_parameter()[:, 1], atol=1e-6
    )


def test_outside_its_scope_it_takes_the_baselines_action():
    rows = decision_rows.draw(3000, 18)
    actions = rows[:, 1] ^ (rows[:, 2] > 3)
    fitted = decision_rows.fit(rows, actions, scope_feature="flag", features=NAMES[:3])
    policy = to_numpy(fitted)
    rows = np.concatenate([decision_rows.draw(2000, 19), decision_rows.wild(200, 20)])
    decisions = decision_rows.decide(fitted, rows)
    inside = rows[:, 4] == 1
    np.testing.assert_array_equal(decisions[~inside], rows[~inside, 1] > 0)
    assert 0 < np.mean(decisions[inside] != (rows[inside, 1] > 0)) < 1
    certain = policy.probabilities(rows[~inside][:, policy.columns(NAMES)])
    np.testing.assert_allclose(certain, decisions[~inside], atol=1e-9)
    decide = policy.begin("m", NAMES)
    assert [decide.decide_row(row, k) for k, row in enumerate(rows.tolist())] == decisions.tolist()


def test_a_scope_makes_another_policy():
    fitted = decision_rows.trained()
    described, arrays = fitted.describe(), fitted.arrays()
    plain = CallSitePolicy(described, arrays, "plain")
    older = {name: value for name, value in described.items() if name != "scope_feature"}
    assert CallSitePolicy(older, arrays, "older").fingerprint == plain.fingerprint
    scoped = CallSitePolicy(described | {"scope_feature": "flag"}, arrays, "scoped")
    assert scoped.fingerprint != plain.fingerprint


def test_features_are_found_by_name():
    policy = to_numpy(decision_rows.trained(), name="mine")
    rows = decision_rows.draw(200, 15)
    expected = policy.begin("m", NAMES)(rows, 0)
    others = np.full((200, 1), 77)
    names = ("new_feature", *NAMES[::-1])
    moved = np.hstack([others, rows[:, ::-1]])
    np.testing.assert_array_equal(policy.begin("m", names)(moved, 5), expected)
    with pytest.raises(UserError, match="policy mine: expected the features cost_est") as caught:
        policy.begin("m", ("inlining_default", "callee_users", "caller_blocks", "flag"))
    assert "\n" not in str(caught.value)
