"""PPO with a policy for rules and one for locations: each clipped, and rewarded, by itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.tfrl_systems.actor_problems import train_eagerly, updates_of
from tests.tfrl_systems.graph_problems import experience, make_agent
from tfrl_systems.agents import ppo

TINY = {"graph_width": 4, "graph_rounds": 1}


class Pair(NamedTuple):
    """A distribution that says which log-probabilities it has."""

    of_rules: Any
    of_pairs: Any

    def rule_log_prob(self, action):
        return self.of_rules

    def log_prob(self, action):
        return self.of_pairs


def test_two_policies_are_clipped_each_by_itself():
    """Two steps: the rule's ratio, the location's, and their advantages.

    r_x    Â_x   min     r_l    Â_l   min     sum
    2       1    1.2     1/2     1    0.5     1.7
    1/2    -1   -0.8     1       3    3       2.2

    The loss is -(1.7 + 2.2) / 2. As one action, both ratios of the first step are 2 · 1/2 = 1.
    """
    agent = make_agent(ppo, two_policies=True, **TINY)
    now = Pair(np.log(np.float32([[0.4, 0.1]])), np.log(np.float32([[0.04, 0.05]])))
    before = np.log(np.float32([[[0.2, 0.2], [0.2, 0.5]]]))
    advantages = np.float32([[[1, 1], [-1, 3]]])
    loss = agent.policy_gradient_loss(None, None, before, advantages, now)
    assert loss.numpy() == pytest.approx(-(1.7 + 2.2) / 2, rel=1e-5)


@pytest.mark.parametrize("is_relative", [False, True])
def test_two_policies_learn_from_returns_of_their_own(is_relative, monkeypatch):
    """Whatever an update learns from has a column for the rule and one for the location."""
    settings = {"two_policies": True, "num_epochs": 1, "relative_advantages": is_relative, **TINY}
    agent = make_agent(ppo, head="hierarchical", **settings)
    updates = updates_of(agent, monkeypatch)
    loss = train_eagerly(agent, experience(ppo, head="hierarchical", **TINY))
    ((_, actions, logs, chosen, advantages, *_),) = updates
    assert logs.shape == advantages.shape == chosen.returns.shape == (*actions.shape[:2], 2)
    np.testing.assert_array_equal(chosen.rules, actions[..., 0])
    np.testing.assert_allclose(np.mean(advantages, axis=1), 0, atol=1e-5)
    np.testing.assert_allclose(np.var(advantages, axis=1), 1, atol=1e-3)
    assert np.isfinite(loss.loss) and np.all(logs.numpy() <= 0)
