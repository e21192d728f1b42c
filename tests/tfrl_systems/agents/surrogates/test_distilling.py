"""The policy's network learns answers, and looks at contexts alone."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec

from tfrl_systems.agents.policy_gradients import NetworkConfig
from tfrl_systems.agents.surrogates.distilling import Pupil, misses
from tfrl_systems.networks.actors import ActorNetwork


def test_a_network_learns_a_line_and_ignores_the_last_action():
    seen = tensor_spec.BoundedTensorSpec((2,), tf.float32, -1, 1)
    chosen = tensor_spec.BoundedTensorSpec((1,), tf.float32, -1, 1)
    config = NetworkConfig(hidden_sizes=(8,))
    network = ActorNetwork(seen, chosen, config, np.random.default_rng(0))
    network.create_variables()
    contexts = np.linspace(-1, 1, 33)[:, np.newaxis]
    pupil = Pupil(network, contexts, num_ignored=1)
    loss = pupil.descend(misses(0.5 * contexts, np.ones_like(contexts)), steps=300)
    assert loss < 0.005**2
    after_0, after_9 = network(np.float32([[0, 0.4], [0.9, 0.4]]))[0].mode().numpy()
    assert after_0 == after_9 == pytest.approx(0.2, abs=0.01)
