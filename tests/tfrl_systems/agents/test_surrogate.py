"""The agent `surrogate`: what it can learn on, trials to a policy, and its state in files."""

from __future__ import annotations

import numpy as np
import pytest
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from tfrl_systems.agents import surrogate
from tfrl_systems.policies.trials import Trials


def make_agent(num_seen=2, action=None, **settings):
    seen = array_spec.BoundedArraySpec((num_seen,), np.float32, -1, 1, "s")
    action = action or array_spec.BoundedArraySpec((1,), np.float32, -1, 3, "x")
    config = surrogate.Config(hidden_sizes=(8,), **settings)
    return surrogate.make_agent(config, ts.time_step_spec(seen), action)


def tried(agent, iteration, count=10):
    points = agent.propose(count, iteration)
    return Trials(points, (points[:, 0] - 0.5 * points[:, 1]) ** 2, evaluations=count)


def test_trials_become_a_policy_in_the_units_of_the_action():
    """The box's x = c / 2 is 1 + c in an action from -1 to 3."""
    agent = make_agent()
    for iteration in range(4):
        agent.train(tried(agent, iteration))
    agent.set_progress(1.0)
    assert agent.report()["trials"] == 40
    step = ts.restart(np.array([[0.0, 0.5]], np.float32), batch_size=1)
    assert agent.policy.action(step).action.numpy()[0, 0] == pytest.approx(1.5, abs=0.1)


@pytest.mark.ci
def test_where_answers_jump_the_policy_keeps_to_one_valley():
    """Ripples along x - c / 2: a network that followed all answers would be on ridges, near 0."""
    agent = make_agent(distil_steps=300)
    points = np.random.default_rng(0).uniform(-1, 1, (80, 2))
    agent.train(Trials(points, ripples(points[:, 0], points[:, 1]), evaluations=80))
    agent.set_progress(1.0)
    contexts = np.linspace(-1, 1, 21)
    observations = np.stack([np.zeros(21), contexts], axis=1).astype(np.float32)
    actions = agent.policy.action(ts.restart(observations, batch_size=21)).action.numpy()[:, 0]
    assert ripples((actions + 1) / 2 - 1, contexts).max() < -0.8


def ripples(x, c):
    return np.cos(8 * np.pi * (x - c / 2))


def test_its_state_in_files_is_all_that_it_needs(tmp_path):
    agent, again = make_agent(), make_agent()
    for iteration in range(3):
        agent.train(tried(agent, iteration))
    agent.save(tmp_path)
    again.restore(tmp_path)
    np.testing.assert_array_equal(again.points, agent.points)
    np.testing.assert_array_equal(again.propose(5, 3), agent.propose(5, 3))


def test_a_log_is_learned_from_before_anything_is_asked():
    agent = make_agent()
    points = np.random.default_rng(0).uniform(-1, 1, (30, 2))
    agent.add_log(Trials(points, (points[:, 0] - 0.5 * points[:, 1]) ** 2))
    proposals = agent.propose(8, 0)
    assert np.mean((proposals[:, 0] - 0.5 * proposals[:, 1]) ** 2) < 0.05


def test_what_it_cannot_learn_on_is_said():
    whole = array_spec.BoundedArraySpec((), np.int32, 0, 3, "x")
    with pytest.raises(UserError, match="expected actions that are bounded vectors"):
        make_agent(action=whole)
    wide = array_spec.BoundedArraySpec((3,), np.float32, -1, 1, "x")
    with pytest.raises(UserError, match="expected observations of what was chosen last"):
        make_agent(action=wide)
    with pytest.raises(UserError, match="found 3 trials of which 3 failed: it broke"):
        make_agent().train(Trials(np.zeros((3, 2)), np.full(3, np.nan), ("it broke",)))
