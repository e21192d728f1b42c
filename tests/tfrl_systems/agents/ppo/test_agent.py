"""PPO: numbers worked by hand, minibatches, and graphs that are encoded once."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
import tree
from tf_agents.trajectories import time_step as ts

from tests.tfrl_systems import actor_problems
from tests.tfrl_systems.actor_problems import (
    PLAIN,
    episode,
    set_value,
    train_eagerly,
    two_episodes,
    updates_of,
)
from tests.tfrl_systems.graph_problems import (
    experience,
    make_agent,
)
from tfrl_systems.agents import ppo
from tfrl_systems.networks import graph_encoder, graph_heads

PLAIN_PPO = PLAIN | {"gae_lambda": 0.5, "normalize_rewards": False, "num_epochs": 1}
SMALL = {"hidden_sizes": (4,), "num_epochs": 3}
TINY = {"graph_width": 4, "graph_rounds": 1}


def normalised(values):
    return (np.array(values) - np.mean(values)) / np.std(values)


def test_advantages_worked_by_hand(monkeypatch):
    """γ = λ = 1/2 and V(s) = s:

    step   s   r   δ = r + γ s' - s     Â = δ + γ λ Â'     Â + s
    0      1   1   1 + 1 - 1 = 1        1 - 1/16           31/16
    1      2   0   0 + 2 - 2 = 0        0 - 1/4             7/4
    2      4   3   3 + 0 - 4 = -1       -1                  3
    0      2   5   5 + 0 - 2 = 3        3                   5
    """
    agent = actor_problems.make_agent(ppo, **PLAIN_PPO)
    set_value(agent, 1.0)
    updates = updates_of(agent, monkeypatch)
    train_eagerly(agent, two_episodes(has_info=True))
    ((time_steps, _, _, returns, advantages, *_),) = updates
    assert returns.numpy().tolist() == [[31 / 16, 7 / 4, 3, 5]]
    np.testing.assert_allclose(advantages[0], normalised([15 / 16, -1 / 4, -1, 3]), rtol=1e-6)
    assert time_steps.observation.numpy().tolist() == [[[1], [2], [4], [2]]]


def test_relative_advantages_worked_by_hand(monkeypatch):
    """V(s) = 0, usual size e^s, γ = 0: each return by its e^s, then to mean 0 and variance 1.

    The value loss is the mean of r², and of (s - log |r|)²; it is weighted by 1/2.
    """
    settings = PLAIN_PPO | {"relative_advantages": True, "gamma": 0.0}
    agent = actor_problems.make_agent(ppo, **settings)
    set_value(agent, 0.0, 1.0)
    updates = updates_of(agent, monkeypatch)
    loss = train_eagerly(agent, two_episodes(has_info=True)).extra.value_estimation_loss
    rewards, states = np.array([1, 1e-20, 3, 5]), np.array([1, 2, 4, 2])
    relative = normalised(np.array([1, 0, 3, 5]) / np.exp(states))
    np.testing.assert_allclose(updates[0][4][0], relative, rtol=1e-4)
    expected = 0.5 * (35 / 4 + np.mean((states - np.log(rewards + 1e-4)) ** 2))
    assert loss.numpy() == pytest.approx(expected, rel=1e-4)


def test_the_clipped_objective_of_algorithm_3_by_hand():
    """ε = 0.2; the thesis's min(r Â, clip(r, 0.8, 1.2) Â) of four steps, and its slope in log π.

    r      Â     r Â     clipped    min     slope
    1.5    1     1.5      1.2       1.2     0       it gained enough
    1.5   -1    -1.5     -1.2      -1.5    -1.5
    0.5    1     0.5      0.8       0.5     0.5
    0.5   -1    -0.5     -0.8      -0.8     0       it lost enough

    The loss is minus the mean, (1.2 - 1.5 + 0.5 - 0.8) / 4 = -0.15; the slopes are divided by -4.
    """
    agent = actor_problems.make_agent(ppo, "integer", clip=0.2)
    observation = {name: tf.zeros([1, 4], tf.int64) for name in actor_problems.NAMES}
    steps = ts.TimeStep(*[tf.zeros([1, 4], kind) for kind in (tf.int32, tf.float32, tf.float32)],
                        observation)  # fmt: skip
    logits = tf.Variable(np.log([[[0.5, 0.5]] * 4]).astype(np.float32))
    before = np.log(np.float32([[0.5 / 1.5, 0.5 / 1.5, 1, 1]]))
    advantages = tf.constant([[1.0, -1, 1, -1]])
    with tf.GradientTape() as tape:
        now = tfp.distributions.Categorical(logits)
        # With log π as given, its slope is that of the log-probabilities themselves.
        loss = agent.policy_gradient_loss(
            steps, tf.zeros([1, 4], tf.int64), before, advantages, now, tf.ones([1, 4])
        )
    assert loss.numpy() == pytest.approx(0.15, rel=1e-5)
    # The slope of log π(0) in the logit of action 0 is 1 - 1/2.
    slopes = 2 * tape.gradient(loss, logits).numpy()[0, :, 0]
    np.testing.assert_allclose(slopes, np.array([0, -1.5, 0.5, 0]) / -4, atol=1e-6)


def test_a_step_that_went_as_expected_counts():
    """Return 0 and advantage 0, which TF-Agents takes for unknown: V is 0 everywhere."""
    agent = actor_problems.make_agent(ppo, **PLAIN_PPO, value_weight=1.0)
    set_value(agent, 0.0)
    rows = [episode([1], [0.1], [reward], has_info=True) for reward in (0, 2)]
    loss = train_eagerly(agent, tree.map_structure(lambda *arrays: np.stack(arrays), *rows))
    assert loss.extra.value_estimation_loss.numpy() == pytest.approx((0 + 4) / 2)


def test_minibatches_are_parts_of_one_size_that_cover_everything(monkeypatch):
    agent = actor_problems.make_agent(ppo, minibatch_size=5, num_epochs=2, hidden_sizes=())
    updates = updates_of(agent, monkeypatch)
    steps = episode(list(range(17)), [0.0] * 17, [0.0] * 17, has_info=True)
    train_eagerly(agent, tree.map_structure(lambda array: array[np.newaxis], steps))
    parts = [time_steps.observation.numpy().ravel() for time_steps, *_ in updates]
    assert len(parts) == 2 * 4 and {len(part) for part in parts} == {4, 5}
    epochs = [np.concatenate(parts[:4]).tolist(), np.concatenate(parts[4:]).tolist()]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(17))


def test_an_update_encodes_what_it_learns_from_once(monkeypatch):
    """Once for policy and value network together; before that, once for the advantages."""
    agent = make_agent(ppo, num_epochs=1, **TINY)
    encoded, graphs_of = [], graph_encoder.graphs_of
    monkeypatch.setattr(
        graph_encoder, "graphs_of", lambda seen: encoded.append(1) or graphs_of(seen)
    )
    train_eagerly(agent, experience(ppo, **TINY))
    assert len(encoded) == 2


@pytest.mark.parametrize("head", graph_heads.HEADS)
def test_an_update_knows_what_the_policy_had_when_it_acted(head, monkeypatch):
    """Log-probabilities from the parameters that the actor gave, and from the policy itself."""
    agent = make_agent(ppo, head=head, num_epochs=1, **TINY)
    updates = updates_of(agent, monkeypatch)
    unchanged = make_agent(ppo, head=head, **TINY).actor_network
    train_eagerly(agent, experience(ppo, head=head, **TINY))
    ((time_steps, actions, collected, *_),) = updates
    current = unchanged(time_steps.observation)[0].log_prob(actions)
    np.testing.assert_allclose(collected, current, rtol=1e-4, atol=1e-5)
    assert np.all(current.numpy() > np.log(1e-6))
