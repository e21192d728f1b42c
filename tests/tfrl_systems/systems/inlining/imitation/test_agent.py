"""The agent learns what it is shown, only that, and the same each time; weights worked by hand."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from tests.tfrl_systems.systems.inlining import decision_rows
from tests.tfrl_systems.systems.inlining.decision_rows import LOGIT_STEP, NAMES
from tfrl_systems.systems.inlining.imitation import agent as decision_agent
from tfrl_systems.systems.inlining.imitation.agent import labelled_experience
from tfrl_systems.systems.inlining.policy import votes
from tfrl_systems.systems.inlining.policy.decision_policy import to_numpy


def decide(agent: decision_agent.DecisionAgent, rows: np.ndarray) -> np.ndarray:
    policy = to_numpy(agent.policy)
    return policy.decide(rows[:, policy.columns(NAMES)])


def test_clones_the_default_from_its_inputs():
    """Shown cost < 5 without being shown the decision itself, on rows it has not seen."""
    agent = decision_rows.make_agent(
        features=("cost_estimate", "callee_users", "caller_blocks"),
        baseline_feature="",
        epochs=30,
        batch_size=64,
        network_learning_rate=1e-2,
    )
    rows = decision_rows.draw(6000, 1)
    rows[:, 0] = rows[:, 0] % 200 - 100
    rows[:, 1] = rows[:, 0] < 5
    loss = agent.train(*labelled_experience(NAMES, rows[:4000], rows[:4000, 1]))
    assert np.mean(decide(agent, rows[4000:]) == rows[4000:, 1]) >= 0.99
    assert loss.extra.num_rows == 4000 and loss.extra.agreement >= 0.99
    assert 0 < loss.loss < 0.2


def test_same_seed_same_policy_whatever_was_trained_before():
    rows = decision_rows.draw(800, 2)
    experience = labelled_experience(NAMES, rows, decision_rows.labels(rows))
    contrary = labelled_experience(NAMES, rows, 1 - decision_rows.labels(rows))
    agents = [decision_rows.make_agent(epochs=2, seed=seed) for seed in (0, 0, 1)]
    agents[1].train(*contrary)
    for agent in agents:
        agent.train(*experience)
    first, again, another = (agent.collect_policy.arrays() for agent in agents)
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name], err_msg=name)
    assert any(not np.array_equal(array, another[name]) for name, array in first.items())


def test_rows_without_weight_and_boundary_steps_teach_nothing():
    rows = decision_rows.draw(900, 3)
    actions = decision_rows.labels(rows)
    agents = [decision_rows.make_agent(epochs=2) for _ in range(3)]
    agents[0].train(*labelled_experience(NAMES, rows[:600], actions[:600]))

    spoiled = np.where(np.arange(900) < 600, actions, 1 - actions)
    experience, weights = labelled_experience(NAMES, rows, spoiled)
    agents[1].train(experience, np.where(np.arange(900) < 600, weights, 0))

    boundary = np.where(np.arange(900) < 600, ts.StepType.MID, ts.StepType.LAST)[np.newaxis]
    agents[2].train(experience._replace(step_type=boundary.astype(np.int32)))

    expected = agents[0].collect_policy.arrays()
    for agent in agents[1:]:
        for name, array in agent.collect_policy.arrays().items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_weights_decide_between_rows_that_contradict_each_other():
    rows = np.repeat(decision_rows.draw(300, 4), 2, axis=0)
    actions = np.tile([0, 1], 300)
    for heavy in (0, 1):
        agent = decision_rows.make_agent(epochs=5, batch_size=32)
        weights = np.where(actions == heavy, 9.0, 1.0)
        agent.train(*labelled_experience(NAMES, rows, actions, weights))
        assert np.all(decide(agent, rows) == heavy)


def test_the_scale_of_the_weights_does_not_matter():
    rows = decision_rows.draw(500, 5)
    learned = []
    for scale in (1.0, 1024.0):
        agent = decision_rows.make_agent()
        weights = np.full(500, scale)
        agent.train(*labelled_experience(NAMES, rows, decision_rows.labels(rows), weights))
        learned.append(agent.collect_policy.arrays()["weights_0"])
    np.testing.assert_array_equal(*learned)


@pytest.mark.parametrize(
    "margin, default, logit_steps, action",
    [
        # Two members: a margin of ½ is reached by votes of 2 * ½ = 1, and passed one step later.
        (0.5, 0, votes.ONE, 0),
        (0.5, 0, votes.ONE + LOGIT_STEP, 1),
        (0.5, 1, -votes.ONE, 1),
        (0.5, 1, -votes.ONE - LOGIT_STEP, 0),
        (0.0, 0, 0, 0),
        (0.0, 1, 0, 1),
        (0.0, 1, -LOGIT_STEP, 0),
        (-0.5, 0, -votes.ONE, 0),
        (-0.5, 0, -votes.ONE + LOGIT_STEP, 1),
        (-0.5, 1, votes.ONE, 1),
        (-0.5, 1, votes.ONE - LOGIT_STEP, 0),
    ],
)
def test_departs_from_the_baseline_only_beyond_the_margin(margin, default, logit_steps, action):
    agent = decision_rows.make_agent(margin=margin, num_models=2)
    decision_rows.answer(agent, logit_steps)
    rows = np.array([[100, default, 0, 0, 0]])
    assert agent.policy.action(decision_rows.time_steps(rows)).action.numpy().tolist() == [action]
    assert decide(agent, rows).tolist() == [action]


def test_without_a_baseline_a_tie_is_no():
    agent = decision_rows.make_agent(baseline_feature="", margin=3.0)
    rows = np.array([[0, 1, 0, 0, 0]])
    assert decide(agent, rows).tolist() == [0]
    decision_rows.answer(agent, LOGIT_STEP)
    assert decide(agent, rows).tolist() == [1]
    assert agent.policy.action(decision_rows.time_steps(rows)).action.numpy().tolist() == [1]


def test_the_collect_policy_draws_with_the_models_probability():
    agent = decision_rows.make_agent(baseline_feature="", num_models=1)
    decision_rows.answer(agent, round(np.log(3) * votes.ONE / LOGIT_STEP) * LOGIT_STEP)
    step = decision_rows.time_steps(np.zeros((4000, 5), np.int64))
    drawn = agent.collect_policy.action(step, seed=1).action.numpy()
    assert drawn.dtype == np.int64
    assert drawn.mean() == pytest.approx(0.75, abs=0.03)
    distribution = agent.collect_policy.distribution(step).action
    np.testing.assert_allclose(distribution.probs_parameter()[0], [0.25, 0.75], atol=1e-6)


def test_observations_of_any_outer_shape():
    agent = decision_rows.trained_agent()
    rows = decision_rows.draw(6, 8)
    expected = agent.collect_policy.logits(decision_rows.time_steps(rows).observation)
    assert expected.shape == (6, 2)
    grid = {name: tf.reshape(rows[:, i], [2, 3]) for i, name in enumerate(NAMES)}
    np.testing.assert_array_equal(
        agent.collect_policy.logits(grid), tf.reshape(expected, [2, 3, 2])
    )
    single = ts.restart({name: tf.constant(rows[0, i]) for i, name in enumerate(NAMES)})
    assert agent.policy.action(single).action.shape == ()


def test_training_needs_rows_and_eager_execution():
    agent = decision_rows.make_agent()
    experience, weights = labelled_experience(NAMES, decision_rows.draw(3, 9), np.ones(3))
    with pytest.raises(UserError, match="rows with positive weight"):
        agent.train(experience, 0 * weights)
    with pytest.raises(ValueError, match="finite"):
        agent.train(experience, np.array([[1, np.nan, 1]]))
    with pytest.raises(RuntimeError, match="found a tf.function"):
        tf.function(lambda: agent.train(experience, weights))()


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"num_models": 0}, "num_models within its range, found 0"),
        ({"hidden_sizes": (64, 257)}, "hidden_sizes"),
        ({"margin": float("nan")}, "margin"),
        ({"features": ("cost_estimate", "hotness")}, "called hotness, found only"),
        ({"baseline_feature": "advice"}, "called advice"),
        ({"scope_feature": "reach"}, "called reach"),
        ({"scope_feature": "flag", "baseline_feature": ""}, "expected scope_feature within"),
    ],
)
def test_settings_out_of_range_are_named(settings, words):
    with pytest.raises(UserError, match=words):
        decision_agent.make_agent(decision_agent.Config(**settings), *decision_rows.specs())


def test_every_setting_is_documented():
    for field in dataclasses.fields(decision_agent.Config):
        assert f"\n  {field.name}: " in inspect.getdoc(decision_agent.Config)


def test_labelled_rows_become_one_long_middle():
    rows = np.array([[1, 2], [3, 4], [5, 6]])
    cloned, weights = labelled_experience(("f", "g"), rows, np.array([1, 0, 1]))
    np.testing.assert_array_equal(cloned.observation["g"], [[2, 4, 6]])
    np.testing.assert_array_equal(cloned.action, [[1, 0, 1]])
    assert not np.any(cloned.is_boundary())
    np.testing.assert_array_equal(weights, [[1, 1, 1]])
    _, weights = labelled_experience(("f", "g"), rows, np.ones(3), np.array([0, 2, 7]))
    np.testing.assert_array_equal(weights, [[0, 2, 7]])
