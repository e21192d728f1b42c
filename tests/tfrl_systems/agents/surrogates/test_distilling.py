"""The policy's network learns answers, then by values, and looks at contexts alone."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec

from tfrl_systems.agents.policy_gradients import NetworkConfig
from tfrl_systems.agents.surrogates.distilling import Pupil, misses
from tfrl_systems.networks.actors import ActorNetwork

CONTEXTS = np.linspace(-1, 1, 33)[:, np.newaxis]


@pytest.fixture
def network():
    seen = tensor_spec.BoundedTensorSpec((2,), tf.float32, -1, 1)
    chosen = tensor_spec.BoundedTensorSpec((1,), tf.float32, -1, 1)
    config = NetworkConfig(hidden_sizes=(8,))
    network = ActorNetwork(seen, chosen, config, np.random.default_rng(0))
    network.create_variables()
    return network


def answers_of(network, contexts, last_action=0.0):
    observations = np.concatenate([np.full_like(contexts, last_action), contexts], axis=1)
    return network(observations.astype(np.float32))[0].mode().numpy()


def test_a_network_learns_a_line_and_ignores_the_last_action(network):
    pupil = Pupil(network, CONTEXTS, num_ignored=1)
    loss = pupil.descend(misses(0.5 * CONTEXTS, np.ones_like(CONTEXTS)), steps=300)
    assert loss < 0.005**2
    context = np.array([[0.4]])
    np.testing.assert_allclose(answers_of(network, context), 0.2, atol=0.01)
    assert answers_of(network, context) == answers_of(network, context, last_action=0.9)


def test_answers_that_jump_between_valleys_become_those_of_one_valley(network):
    """Values are least, 0, at c/2 ± 0.1, and 1 on the ridge at c/2, where the mean answer lies."""
    ridge = 0.5 * CONTEXTS
    jumping = ridge + 0.1 * (-1) ** np.arange(len(CONTEXTS))[:, np.newaxis]

    def values(actions):
        beside = (actions - ridge) / 0.1
        return np.sum((1 - beside**2) ** 2, axis=1), -4 * (1 - beside**2) * beside / 0.1

    pupil = Pupil(network, CONTEXTS, num_ignored=1)
    pupil.descend(misses(jumping, np.ones_like(CONTEXTS)), steps=300)
    assert values(answers_of(network, CONTEXTS))[0].mean() > 0.5
    assert pupil.descend(values, steps=300) < 0.01
    assert abs(np.sign(answers_of(network, CONTEXTS) - ridge).sum()) == len(CONTEXTS)
