"""Saved policies of PPO and REINFORCE: TensorFlow, NumPy, and questions about c."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
import tree
from tf_agents.trajectories import time_step as ts

from environments import files
from environments.errors import UserError
from tests.tfrl_systems import actor_problems
from tests.tfrl_systems.actor_problems import AGENTS
from tfrl_systems.policies import export, policy_files
from tfrl_systems.policies.numpy_actor import load_network
from tfrl_systems.policies.numpy_network import NumpyNetwork
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.learn_to_optimize.optimizer_policy import OptimizerPolicy

# Points of 5 numbers, the last 2 of which are given.
ABOUT = {"environment": "learn_to_optimize", "function": "sphere", "dimensions": 5, "free": 2}


def make_policy(name: str, kind: str):
    """A greedy policy with arbitrary weights and a normaliser that has seen something."""
    module = AGENTS[name]
    specs = actor_problems.float_specs(5, 3) if kind == "float" else actor_problems.integer_specs()
    settings = {"normalize_observations": True} if name == "ppo" else {}
    agent = module.make_agent(module.Config(hidden_sizes=(8,), **settings), *specs)
    generator = np.random.default_rng(4)
    for variable in agent.policy.variables():
        noise = generator.normal(scale=0.5, size=variable.shape)
        variable.assign(variable + (noise if variable.trainable else 1 + np.abs(noise)))
    return agent.policy


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Directories of saved policies, by agent and kind of problem."""
    root = tmp_path_factory.mktemp("policies")
    directories = {}
    for name, kind in [("ppo", "float"), ("reinforce", "integer")]:
        directories[name] = root / name
        export.save_policy(directories[name], make_policy(name, kind), ABOUT)
    return directories


@pytest.fixture
def copy(saved, tmp_path):
    """A copy of PPO's that a test may spoil."""
    for name in (policy_files.JSON_NAME, policy_files.ARRAYS_NAME):
        (tmp_path / name).write_bytes((saved["ppo"] / name).read_bytes())
    return tmp_path


def edit(directory, **fields):
    path = directory / policy_files.JSON_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    "name, kind",
    [pytest.param("ppo", "float", marks=pytest.mark.ci), ("reinforce", "integer")],
)
def test_tensorflow_and_numpy_answer_alike(saved, name, kind):
    generator = np.random.default_rng(0)
    seen = actor_problems.observations(kind, 50, generator)
    if kind == "float":
        seen = generator.uniform(-1, 1, (50, 5)).astype(np.float32)
    policy = tf.saved_model.load(str(saved[name]))
    step = policy.action(ts.restart(tree.map_structure(tf.constant, seen), 50))
    np.testing.assert_allclose(load_network(saved[name]).mode(seen), step.action, atol=1e-5)


def test_a_question_starts_at_zero(saved):
    """x = π(0, c)."""
    c = np.random.default_rng(1).uniform(-1, 1, (6, 2)).astype(np.float32)
    expected = load_network(saved["ppo"]).mode(np.hstack([np.zeros((6, 3), np.float32), c]))
    policy = OptimizerPolicy.load(saved["ppo"])
    answer = policy(c)
    for _ in range(2):
        np.testing.assert_allclose(policy(c), expected, atol=1e-6)
        policy(-c)
        np.testing.assert_allclose(answer, expected, atol=1e-6)
        np.testing.assert_allclose(policy(c[0]), expected[0], atol=1e-6)
        np.testing.assert_allclose(policy(c[:1]), expected[:1], atol=1e-6)
    assert policy(c[0].astype(np.float64).tolist()).shape == (3,)


def test_c_of_another_size_is_refused(saved):
    policy = OptimizerPolicy.load(saved["ppo"])
    for c in ([1.0], [[1.0, 2.0, 3.0]], 0.5, np.zeros((2, 2, 2))):
        with pytest.raises(ValueError, match=r"expected c as \[2\] or \[N, 2\], found"):
            policy(c)


def test_questions_need_no_tensorflow(saved):
    code = """
import sys
from tfrl_systems.systems.learn_to_optimize.optimizer_policy import OptimizerPolicy
print(OptimizerPolicy.load(sys.argv[1])([0.25, -0.5]).tolist())
assert not {"tensorflow", "tf_agents", "sklearn"} & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(saved["ppo"])], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    expected = OptimizerPolicy.load(saved["ppo"])([0.25, -0.5])
    np.testing.assert_allclose(json.loads(done.stdout), expected, rtol=1e-6)


def test_policy_json_says_what_it_is(saved):
    described = policy_files.load_policy_json(saved["ppo"])
    assert {name: described[name] for name in ABOUT} == ABOUT
    assert described["kind"] == "actor"
    assert described["hidden_sizes"] == [8]
    with np.load(saved["ppo"] / policy_files.ARRAYS_NAME, allow_pickle=False) as arrays:
        assert set(arrays) == {
            *(f"{name}_{i}" for name in ("kernel", "bias") for i in (0, 1)),
            *(f"{name}_0" for name in ("count", "mean", "squares")),
            "log_std",
        }


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"dimensions": 4}, "expected a policy from 4 numbers to 2, found one from 5 to 3"),
        ({"kind": "forest"}, "expected a policy of the kind actor, graph_actor, controller"),
        ({"kind": ["actor"]}, "expected a policy of the kind actor, graph_actor, controller"),
        ({"free": True}, "found free missing or wrong"),
        ({"dimensions": None, "kind": "actor"}, "found dimensions missing or wrong"),
        ({"environment": "inlining"}, "expected a policy of learn_to_optimize, found one of inl"),
        ({"environment": None}, "expected a policy of learn_to_optimize, found one of None"),
        ({"hidden_sizes": [9]}, "expected a policy whose files fit each other"),
        ({"activation": "gelu"}, "expected a policy whose files fit each other"),
        ({"inputs": 3}, "expected a policy whose files fit each other"),
    ],
)
def test_files_that_do_not_fit_are_refused(copy, fields, words):
    edit(copy, **fields)
    with pytest.raises(UserError, match=words):
        OptimizerPolicy.load(copy)


@pytest.mark.parametrize(
    "value, words",
    [
        (np.array([np.nan], np.float32), "log_std: numbers that are not finite"),
        (np.array(["a"]), "log_std of the type <U1"),
        (np.array([1j]), "log_std of the type complex128"),
    ],
)
def test_forged_arrays_are_refused(copy, value, words):
    """Their digest is right."""
    path = copy / policy_files.ARRAYS_NAME
    with np.load(path) as archive:
        arrays = {**archive, "log_std": value}
    np.savez(path, **arrays)
    edit(copy, arrays_sha256=files.sha256(path))
    with pytest.raises(UserError, match=words):
        OptimizerPolicy.load(copy)


def test_policies_of_something_else_are_refused(saved, copy):
    with pytest.raises(UserError, match="expected a policy from 5 numbers to 3"):
        OptimizerPolicy.load(saved["reinforce"])
    with pytest.raises(UserError, match="decides call sites, found one of the kind actor"):
        CallSitePolicy.load(saved["ppo"])
    (copy / policy_files.ARRAYS_NAME).write_bytes(b"rubbish")
    with pytest.raises(UserError, match="expected SHA-256"):
        OptimizerPolicy.load(copy)


@pytest.mark.usefixtures("no_saved_models")
def test_equal_policies_have_equal_digests(tmp_path, saved):
    again = export.save_policy(tmp_path / "again", make_policy("ppo", "float"), {})
    assert again == policy_files.load_policy_json(saved["ppo"])["arrays_sha256"]
    assert isinstance(load_network(tmp_path / "again"), NumpyNetwork)


def test_an_onnx_model_answers_the_same(saved):
    policy = OptimizerPolicy.load(saved["ppo"])
    session = onnxruntime.InferenceSession(policy.to_onnx().SerializeToString())
    c = np.random.default_rng(5).uniform(-1, 1, (40, 2)).astype(np.float32)
    (answer,) = session.run(["x"], {"c": c})
    np.testing.assert_allclose(answer, policy(c), atol=2e-6)
    assert answer.std() > 0.01
