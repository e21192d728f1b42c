"""The twin of a mixture: the same numbers as TensorFlow, in files, for c, and in ONNX."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
import tree
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from tests.tfrl_systems import actor_problems
from tfrl_systems.agents import ppo
from tfrl_systems.policies import export, policy_files, variables
from tfrl_systems.policies.numpy_actor import NumpyActor, load_network
from tfrl_systems.systems.learn_to_optimize.optimizer_policy import OptimizerPolicy

ABOUT = {"environment": "learn_to_optimize", "function": "sphere", "dimensions": 5, "free": 2}
SEEN = np.random.default_rng(0).uniform(-1, 1, (50, 5)).astype(np.float32)


@pytest.fixture(scope="module", params=[False, True], ids=["one std", "a std of each state"])
def agent(request):
    """With arbitrary weights."""
    config = ppo.Config(components=3, hidden_sizes=(8,), state_dependent_std=request.param)
    agent = ppo.make_agent(config, *actor_problems.float_specs(5, 3))
    generator = np.random.default_rng(4)
    for variable in agent.actor_network.trainable_variables:
        variable.assign(variable + generator.normal(scale=0.5, size=variable.shape))
    agent.actor_network.set_even_share(0.25)
    return agent


def loaded(agent) -> NumpyActor:
    actor = NumpyActor.from_policy(agent.collect_policy)
    actor.load(variables.to_bytes(agent.collect_policy.variables()))
    return actor


def test_distributions_are_those_of_tensorflow(agent):
    actor = loaded(agent)
    reference = agent.collect_policy.distribution(ts.restart(tf.constant(SEEN), 50))
    step = actor.act(ts.restart(SEEN, 50), np.random.default_rng(0))
    tree.map_structure(
        lambda mine, theirs: np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5),
        step.info,
        tree.map_structure(np.asarray, reference.info),
    )
    np.testing.assert_allclose(actor.entropy(SEEN), reference.action.entropy(), rtol=1e-4)
    np.testing.assert_allclose(actor.mode(SEEN), reference.action.mode(), atol=1e-5)


def test_experience_is_as_the_agent_expects_it(agent):
    step = loaded(agent).act(ts.restart(SEEN, 50), np.random.default_rng(0))
    spec = agent.collect_data_spec
    tree.assert_same_structure(step.info, tree.map_structure(np.asarray, spec.policy_info))
    for array, leaf in zip(tree.flatten(step.info), tree.flatten(spec.policy_info), strict=True):
        assert (array.shape, array.dtype) == ((50, *leaf.shape), leaf.dtype.as_numpy_dtype)


def test_new_values_replace_the_old_ones(agent):
    actor = loaded(agent)
    before = actor.mode(SEEN)
    changed = [variable.numpy() for variable in agent.collect_policy.variables()]
    for array in changed:
        array += 0.5
    actor.load(
        variables.to_bytes(
            [
                tf.Variable(array, name=variable.name.removesuffix(":0"))
                for array, variable in zip(changed, agent.collect_policy.variables(), strict=True)
            ]
        )
    )
    assert np.abs(actor.mode(SEEN) - before).max() > 0.1


def test_a_saved_policy_answers_alike_in_tensorflow_numpy_and_onnx(agent, tmp_path):
    directory = tmp_path / "policy"
    export.save_policy(directory, agent.policy, ABOUT)
    saved = tf.saved_model.load(str(directory))
    action = saved.action(ts.restart(tf.constant(SEEN), 50)).action
    np.testing.assert_allclose(load_network(directory).mode(SEEN), action, atol=1e-5)
    policy = OptimizerPolicy.load(directory)
    session = onnxruntime.InferenceSession(policy.to_onnx().SerializeToString())
    free = SEEN[:, 3:]
    (answers,) = session.run(["x"], {"c": free})
    np.testing.assert_allclose(answers, policy(free), atol=1e-6)
    assert len(np.unique(np.round(answers, 3), axis=0)) > 1


def test_damaged_files_are_refused(agent, tmp_path):
    directory = tmp_path / "policy"
    export.save_policy(directory, agent.policy, ABOUT)
    path = directory / policy_files.JSON_NAME
    path.write_text(path.read_text().replace('"components": 3', '"components": 2'))
    with pytest.raises(UserError, match="expected a policy whose files fit each other"):
        OptimizerPolicy.load(directory)
