"""REINFORCE: returns worked by hand, and updates that see some episodes each."""

from __future__ import annotations

import numpy as np
import pytest
import tree

from tests.tfrl_systems.actor_problems import (
    PLAIN,
    make_agent,
    set_value,
    snapshot,
    train_eagerly,
    two_episodes,
)
from tfrl_systems.agents import reinforce


def test_returns_worked_by_hand(monkeypatch):
    """γ = 1/2 and V(s) = s:

    step   s   r   G = r + γ G'   G - s
    0      1   1   1 + 3/4         3/4
    1      2   0   0 + 3/2        -1/2
    2      4   3   3              -1
    0      2   5   5               3
    """
    agent = make_agent(reinforce, normalize_advantages=False, value_weight=0.5, **PLAIN)
    set_value(agent, 1.0)
    advantages, inner = [], agent.policy_gradient_loss
    monkeypatch.setattr(
        agent,
        "policy_gradient_loss",
        lambda *args: advantages.append(args[3].numpy().tolist()) or inner(*args),
    )
    loss = train_eagerly(agent, two_episodes(has_info=False))
    assert advantages == [[[3 / 4, -1 / 2, -1, 3]]]
    squares = 9 / 16 + 1 / 4 + 1 + 9
    assert loss.extra.value_estimation_loss.numpy() == pytest.approx(0.5 * squares / 2)


def test_an_update_can_take_some_episodes_at_a_time():
    """One at a time: the same as two trainings with one episode each."""
    settings = {**PLAIN, "normalize_advantages": False, "hidden_sizes": (4,)}
    parted, whole = (make_agent(reinforce, episodes_per_update=n, **settings) for n in (1, 0))
    both = two_episodes(has_info=False)
    train_eagerly(parted, both)
    for row in (0, 1):
        train_eagerly(whole, tree.map_structure(lambda array, row=row: array[row : row + 1], both))
    for actual, expected in zip(snapshot(parted), snapshot(whole), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)


def test_entropy_counts_as_its_mean_over_steps():
    """Of a normal distribution, log(σ √(2πe)), once however many steps there are."""
    agent = make_agent(reinforce, entropy_regularization=3.0, action_std=0.5, **PLAIN)
    loss = train_eagerly(agent, two_episodes(has_info=False))
    entropy = np.log(0.5 * np.sqrt(2 * np.pi * np.e))
    assert loss.extra.entropy_regularization_loss.numpy() == pytest.approx(-3 * entropy)
