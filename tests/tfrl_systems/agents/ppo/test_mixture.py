"""PPO with several answers: what each component and the judge learn."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tree

from tests.tfrl_systems import actor_problems
from tests.tfrl_systems.actor_problems import train_eagerly, updates_of
from tfrl_systems.agents import ppo


def test_components_are_compared_with_themselves(monkeypatch):
    """Two steps of one state, each certainly of another component; returns 1 and 5.

    The judge expects 2 of the first and 3 of the second component, so the advantages are -1 and 2
    before they are brought to mean 0 and variance 1. Its loss is the mean of (-1)² and 2², and of
    the same with log d = 0: (0 - log 1)² and (0 - log 2)².
    """
    agent = actor_problems.make_agent(
        ppo, components=2, hidden_sizes=(), gamma=0.0, num_epochs=1, value_weight=1.0,
        normalize_rewards=False, relative_advantages=True,
    )  # fmt: skip
    named = agent.actor_network.named_variables()
    named["judge/kernel_0"].assign(tf.zeros_like(named["judge/kernel_0"]))
    named["judge/bias_0"].assign([2.0, 3.0, 0.0, 0.0])
    updates = updates_of(agent, monkeypatch)
    steps = [actor_problems.episode([1], [a], [r], has_info=True) for a, r in ((-1, 1), (1, 5))]
    info = {
        "logits": np.zeros((1, 2), np.float32),
        "loc": np.float32([[[-1], [1]]]),
        "scale_diag": np.full((1, 2, 1), 0.1, np.float32),
    }
    steps = [step.replace(policy_info={"dist_params": info}) for step in steps]
    loss = train_eagerly(agent, tree.map_structure(lambda *arrays: np.stack(arrays), *steps))
    ((*_, returned, advantages), *_) = [update[:5] for update in updates]
    np.testing.assert_allclose(returned.shares[0], np.eye(2), atol=1e-6)
    np.testing.assert_allclose(advantages[0], [-1, 1], atol=1e-4)
    expected = (1 + 4) / 2 + np.log(2) ** 2 / 2
    assert loss.extra.value_estimation_loss.numpy() == pytest.approx(expected, rel=1e-3)
