"""The policy's network learns answers, and looks at contexts alone."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tf_agents.specs import tensor_spec

from tfrl_systems.agents.policy_gradients import NetworkConfig
from tfrl_systems.agents.surrogates.distilling import distil
from tfrl_systems.networks.actors import ActorNetwork


def test_a_network_learns_a_line_and_ignores_the_last_action():
    seen = tensor_spec.BoundedTensorSpec((2,), tf.float32, -1, 1)
    chosen = tensor_spec.BoundedTensorSpec((1,), tf.float32, -1, 1)
    config = NetworkConfig(hidden_sizes=(8,))
    network = ActorNetwork(seen, chosen, config, np.random.default_rng(0))
    network.create_variables()
    contexts = np.linspace(-1, 1, 33)[:, np.newaxis]
    weights = np.ones_like(contexts)
    error = distil(network, contexts, 0.5 * contexts, weights, num_ignored=1, steps=300)
    assert error < 0.005
    observations = np.array([[0.0, 0.4], [0.9, 0.4]], np.float32)
    answers = network(observations)[0].mode().numpy()
    np.testing.assert_allclose(answers, 0.2, atol=0.01)
    assert answers[0] == answers[1]
