"""A saved mixture: the same answers in TensorFlow, in NumPy and in ONNX."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from tests.tfrl_systems import actor_problems
from tfrl_systems.agents import ppo
from tfrl_systems.policies import export, policy_files
from tfrl_systems.policies.numpy_actor import load_network
from tfrl_systems.systems.learn_to_optimize.optimizer_policy import OptimizerPolicy

ABOUT = {"environment": "learn_to_optimize", "function": "sphere", "dimensions": 5, "free": 2}


@pytest.fixture
def saved(tmp_path):
    """A policy with arbitrary weights."""
    config = ppo.Config(components=3, hidden_sizes=(8,), state_dependent_std=True)
    agent = ppo.make_agent(config, *actor_problems.float_specs(5, 3))
    generator = np.random.default_rng(4)
    for variable in agent.actor_network.trainable_variables:
        variable.assign(variable + generator.normal(scale=0.5, size=variable.shape))
    agent.actor_network.set_even_share(0.25)
    export.save_policy(tmp_path / "policy", agent.policy, ABOUT)
    return tmp_path / "policy"


def test_a_saved_policy_answers_alike_in_tensorflow_numpy_and_onnx(saved):
    seen = np.random.default_rng(0).uniform(-1, 1, (50, 5)).astype(np.float32)
    model = tf.saved_model.load(str(saved))
    action = model.action(ts.restart(tf.constant(seen), 50)).action
    np.testing.assert_allclose(load_network(saved).mode(seen), action, atol=1e-5)
    policy = OptimizerPolicy.load(saved)
    session = onnxruntime.InferenceSession(policy.to_onnx().SerializeToString())
    free = seen[:, 3:]
    (answers,) = session.run(["x"], {"c": free})
    np.testing.assert_allclose(answers, policy(free), atol=1e-6)
    assert len(np.unique(np.round(answers, 3), axis=0)) > 1


@pytest.mark.usefixtures("no_saved_models")
def test_damaged_files_are_refused(saved):
    path = saved / policy_files.JSON_NAME
    path.write_text(path.read_text().replace('"components": 3', '"components": 2'))
    with pytest.raises(UserError, match="expected a policy whose files fit each other"):
        OptimizerPolicy.load(saved)
