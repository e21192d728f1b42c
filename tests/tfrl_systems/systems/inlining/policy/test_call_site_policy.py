"""The NumPy policy decides as the TensorFlow policy does, whatever the batch, and fast."""

from __future__ import annotations

import numpy as np
import pytest

from environments.errors import UserError
from tests.tfrl_systems.systems.inlining import decision_rows
from tests.tfrl_systems.systems.inlining.decision_rows import NAMES
from tfrl_systems.systems.inlining.imitation.agent import labelled_experience
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.inlining.policy.decision_policy import to_numpy


def test_decides_as_tensorflow_does():
    agent = decision_rows.trained_agent()
    rows = np.concatenate([decision_rows.draw(5000, 11), decision_rows.wild(500, 12)])
    step = decision_rows.time_steps(rows)
    decisions = to_numpy(agent.policy).begin("module", NAMES)(rows, 0)
    np.testing.assert_array_equal(decisions, agent.policy.action(step).action)
    assert decisions.dtype == np.int8
    assert 0.2 < decisions.mean() < 0.8
    assert 0 < np.mean(decisions != rows[:, 1]) < 0.5


def test_logits_are_tensorflows():
    agent = decision_rows.trained_agent()
    policy = to_numpy(agent.policy)
    rows = decision_rows.draw(500, 13)
    logits = policy.logits(rows[:, policy.columns(NAMES)])
    expected = agent.collect_policy.logits(decision_rows.time_steps(rows).observation)
    np.testing.assert_array_equal(logits.astype(np.float32), expected[:, 1] - expected[:, 0])
    distribution = agent.collect_policy.distribution(decision_rows.time_steps(rows)).action
    np.testing.assert_allclose(
        policy.probabilities(rows[:, policy.columns(NAMES)]),
        distribution.probs_parameter()[:, 1],
        atol=1e-6,
    )


def test_no_bit_depends_on_the_batch():
    policy = to_numpy(decision_rows.trained_agent().policy)
    rows = decision_rows.draw(5000, 14)[:, policy.columns(NAMES)]
    logits = policy.logits(rows)
    for size in (1, 3, 64):
        parts = [policy.logits(rows[i : i + size]) for i in range(0, 600, size)]
        np.testing.assert_array_equal(np.concatenate(parts)[:600], logits[:600])
    assert policy.logits(rows[:0]).shape == (0,)


def test_outside_its_scope_it_takes_the_baselines_action():
    agent = decision_rows.make_agent(scope_feature="flag", features=NAMES[:3])
    rows = decision_rows.draw(3000, 18)
    agent.train(*labelled_experience(NAMES, rows, rows[:, 1] ^ (rows[:, 2] > 3)))
    policy = to_numpy(agent.policy)
    rows = np.concatenate([decision_rows.draw(2000, 19), decision_rows.wild(200, 20)])
    decisions = policy.begin("m", NAMES)(rows, 0)
    step = decision_rows.time_steps(rows)
    np.testing.assert_array_equal(decisions, agent.policy.action(step).action)
    inside = rows[:, 4] == 1
    np.testing.assert_array_equal(decisions[~inside], rows[~inside, 1] > 0)
    assert 0 < np.mean(decisions[inside] != (rows[inside, 1] > 0)) < 1
    certain = policy.probabilities(rows[~inside][:, policy.columns(NAMES)])
    np.testing.assert_allclose(certain, decisions[~inside], atol=1e-9)


@pytest.mark.parametrize("scope", ["", "flag"])
def test_single_rows_are_decided_as_many_are(scope):
    agent = decision_rows.make_agent(scope_feature=scope)
    rows = decision_rows.draw(500, 21)
    agent.train(*labelled_experience(NAMES, rows, decision_rows.labels(rows)))
    decide = to_numpy(agent.policy).begin("m", NAMES)
    alone = [decide.decide_row(row, k) for k, row in enumerate(rows.tolist())]
    assert alone == decide(rows, 0).tolist()


def test_a_scope_makes_another_policy():
    agent = decision_rows.trained_agent()
    inner = agent.collect_policy
    described, arrays = inner.describe(), inner.arrays()
    plain = CallSitePolicy(described, arrays, "plain")
    older = {name: value for name, value in described.items() if name != "scope_feature"}
    assert CallSitePolicy(older, arrays, "older").fingerprint == plain.fingerprint
    scoped = CallSitePolicy(described | {"scope_feature": "flag"}, arrays, "scoped")
    assert scoped.fingerprint != plain.fingerprint


def test_features_are_found_by_name():
    policy = to_numpy(decision_rows.trained_agent().policy)
    rows = decision_rows.draw(200, 15)
    expected = policy.begin("m", NAMES)(rows, 0)
    others = np.full((200, 1), 77)
    names = ("new_feature", *NAMES[::-1])
    moved = np.hstack([others, rows[:, ::-1]])
    np.testing.assert_array_equal(policy.begin("m", names)(moved, 5), expected)


def test_a_missing_feature_is_named_in_one_line():
    policy = to_numpy(decision_rows.trained_agent().policy, name="mine")
    with pytest.raises(UserError, match="policy mine: expected the features cost_est") as caught:
        policy.begin("m", ("inlining_default", "callee_users", "caller_blocks", "flag"))
    assert "\n" not in str(caught.value)


def test_later_training_does_not_reach_a_twin():
    agent = decision_rows.make_agent()
    rows = decision_rows.draw(300, 17)
    agent.train(*labelled_experience(NAMES, rows, np.ones(300)))
    policy = to_numpy(agent.policy)
    decisions = policy.begin("m", NAMES)(rows, 0)
    agent.train(*labelled_experience(NAMES, rows, np.zeros(300)))
    np.testing.assert_array_equal(policy.begin("m", NAMES)(rows, 0), decisions)
    assert np.any(to_numpy(agent.policy).begin("m", NAMES)(rows, 0) != decisions)


def test_foreign_policies_are_refused():
    with pytest.raises(UserError, match=r"made by agents.bc_max, found object"):
        to_numpy(object())
