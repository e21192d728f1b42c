"""The first actor takes the default's decision, and can leave it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tfrl_systems.actor_problems import AGENTS, make_agent, observations
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.policies.variables import Packer
from tfrl_systems.systems.inlining.learning import follow_feature


@pytest.mark.parametrize("hidden_sizes", [(), (8,), (16, 8)])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_first_actor_follows_a_feature(hidden_sizes, activation):
    settings = {"hidden_sizes": hidden_sizes, "activation": activation}
    agent = make_agent(AGENTS["ppo"], "integer", **settings)
    before = [variable.numpy() for variable in agent.actor_network.variables]
    follow_feature(agent.actor_network, "bit", 0.9)
    actor = NumpyActor.from_policy(agent.collect_policy)
    actor.load(Packer(agent.collect_policy.variables()).to_bytes(0))
    observation = observations("integer", 500, np.random.default_rng(0))
    logits = actor.network.parameters(observation)["logits"]
    chances = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    followed = np.where(observation["bit"] == 1, chances, 1 - chances)
    assert np.median(followed) == pytest.approx(0.9, abs=0.02)
    assert followed.min() > 0.75 and followed.max() < 0.97
    # One unit of each layer is taken for it; all others are as they were drawn.
    after = [variable.numpy() for variable in agent.actor_network.variables]
    for kernel, new in zip(before[:-2:2], after[:-2:2], strict=True):
        assert np.array_equal(kernel[:, 1:], new[:, 1:])
