"""Saved policies of PPO: TensorFlow, NumPy, questions about c, and answers that are polished."""

from __future__ import annotations

import json
import subprocess
import sys

import hypothesis
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from tf_agents.trajectories import time_step as ts

from environments import files
from environments.errors import UserError
from tests.tfrl_systems import actor_problems
from tfrl_systems.agents import ppo
from tfrl_systems.policies import export, policy_files
from tfrl_systems.policies.numpy_actor import load_network
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.learn_to_optimize.optimizer_policy import OptimizerPolicy, polish_point

# Points of 5 numbers, the last 2 of which are given.
ABOUT = {"environment": "learn_to_optimize", "function": "sphere", "dimensions": 5, "free": 2}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved policy with arbitrary weights and a normaliser that has seen something."""
    config = ppo.Config(hidden_sizes=(8,), normalize_observations=True)
    policy = ppo.make_agent(config, *actor_problems.float_specs(5, 3)).policy
    generator = np.random.default_rng(4)
    for variable in policy.variables():
        noise = generator.normal(scale=0.5, size=variable.shape)
        variable.assign(variable + (noise if variable.trainable else 1 + np.abs(noise)))
    directory = tmp_path_factory.mktemp("policies") / "ppo"
    export.save_policy(directory, policy, ABOUT)
    return directory


@pytest.fixture
def copy(saved, tmp_path):
    """A copy that a test may spoil."""
    for name in (policy_files.JSON_NAME, policy_files.ARRAYS_NAME):
        (tmp_path / name).write_bytes((saved / name).read_bytes())
    return tmp_path


def edit(directory, **fields):
    path = directory / policy_files.JSON_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.ci
def test_tensorflow_and_numpy_answer_alike(saved):
    seen = np.random.default_rng(0).uniform(-1, 1, (50, 5)).astype(np.float32)
    policy = tf.saved_model.load(str(saved))
    step = policy.action(ts.restart(tf.constant(seen), 50))
    np.testing.assert_allclose(load_network(saved).mode(seen), step.action, atol=1e-5)


def test_a_question_starts_at_zero(saved):
    """x = π(0, c)."""
    c = np.random.default_rng(1).uniform(-1, 1, (6, 2)).astype(np.float32)
    expected = load_network(saved).mode(np.hstack([np.zeros((6, 3), np.float32), c]))
    policy = OptimizerPolicy.load(saved)
    answer = policy(c)
    for _ in range(2):
        np.testing.assert_allclose(policy(c), expected, atol=1e-6)
        policy(-c)
        np.testing.assert_allclose(answer, expected, atol=1e-6)
        np.testing.assert_allclose(policy(c[0]), expected[0], atol=1e-6)
        np.testing.assert_allclose(policy(c[:1]), expected[:1], atol=1e-6)
    assert policy(c[0].astype(np.float64).tolist()).shape == (3,)
    for wrong in ([1.0], [[1.0, 2.0, 3.0]], 0.5, np.zeros((2, 2, 2))):
        with pytest.raises(ValueError, match=r"expected c as \[2\] or \[N, 2\], found"):
            policy(wrong)


def test_questions_need_no_tensorflow(saved):
    code = """
import sys
from tfrl_systems.systems.learn_to_optimize.optimizer_policy import OptimizerPolicy
print(OptimizerPolicy.load(sys.argv[1])([0.25, -0.5]).tolist())
assert not {"tensorflow", "tf_agents", "sklearn"} & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(saved)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    expected = OptimizerPolicy.load(saved)([0.25, -0.5])
    np.testing.assert_allclose(json.loads(done.stdout), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"dimensions": 4}, "expected a policy from 4 numbers to 2, found one from 5 to 3"),
        ({"kind": "forest"}, "expected a policy of the kind actor, graph_actor, controller"),
        ({"free": True}, "found free missing or wrong"),
        ({"dimensions": None, "kind": "actor"}, "found dimensions missing or wrong"),
        ({"environment": "inlining"}, "expected a policy of learn_to_optimize, found one of inl"),
        ({"activation": "gelu"}, "expected a policy whose files fit each other"),
    ],
)
def test_files_that_do_not_fit_are_refused(copy, fields, words):
    edit(copy, **fields)
    with pytest.raises(UserError, match=words):
        OptimizerPolicy.load(copy)


def test_damaged_and_forged_arrays_and_other_policies_are_refused(saved, copy):
    path = copy / policy_files.ARRAYS_NAME
    with np.load(path) as archive:
        arrays = dict(archive)
    for value, words in (
        (np.array([np.nan], np.float32), "log_std: numbers that are not finite"),
        (np.array([1j]), "log_std of the type complex128"),
    ):
        np.savez(path, **{**arrays, "log_std": value})
        edit(copy, arrays_sha256=files.sha256(path))
        with pytest.raises(UserError, match=words):
            OptimizerPolicy.load(copy)
    path.write_bytes(b"rubbish")
    with pytest.raises(UserError, match="expected SHA-256"):
        OptimizerPolicy.load(copy)
    with pytest.raises(UserError, match="decides call sites, found one of the kind actor"):
        CallSitePolicy.load(saved)


def test_an_onnx_model_answers_the_same(saved):
    policy = OptimizerPolicy.load(saved)
    session = onnxruntime.InferenceSession(policy.to_onnx().SerializeToString())
    c = np.random.default_rng(5).uniform(-1, 1, (40, 2)).astype(np.float32)
    (answer,) = session.run(["x"], {"c": c})
    np.testing.assert_allclose(answer, policy(c), atol=2e-6)
    assert answer.std() > 0.01


class Counted:
    """A bowl around `centre`, or another function, that counts the rows it is asked for."""

    def __init__(self, centre, value_fn=None):
        self.centre, self.rows = np.asarray(centre), []
        self._value_fn = value_fn or (lambda x: float(np.sum((x - self.centre) ** 2)))

    def __call__(self, rows):
        self.rows.extend(rows.tolist())
        return np.array([self._value_fn(row[: len(self.centre)]) for row in rows])


def test_ten_evaluations_find_the_bottom_of_a_bowl():
    bowl = Counted([0.31, -0.42])
    x = polish_point(bowl, np.array([0.3, -0.4], np.float32), np.array([0.5]), 10)
    np.testing.assert_allclose(x, bowl.centre, atol=1e-6)
    # The free parameter comes along unchanged, and the first point is the answer itself.
    assert all(row[2] == 0.5 for row in bowl.rows)
    np.testing.assert_allclose(bowl.rows[0][:2], [0.3, -0.4], atol=1e-7)
    # Of three, one is for the answer itself, two for steps up and down along the first axis.
    bowl = Counted([0.2, -0.2])
    x = polish_point(bowl, np.array([0.18, -0.2]), np.zeros(1), 3)
    expected = [[0.18, -0.2], [0.21, -0.2], [0.15, -0.2]]
    np.testing.assert_allclose([row[:2] for row in bowl.rows], expected)
    np.testing.assert_allclose(x, [0.21, -0.2])


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(
    start=st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=3),
    evaluations=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_it_is_never_worse_nor_asks_more_nor_leaves_the_box(start, evaluations, seed):
    centre = np.random.default_rng(seed).uniform(-2, 2, len(start))
    bowl = Counted(centre, lambda x: float(np.sum(np.abs(x - centre))))
    x = np.array(start)
    polished = polish_point(bowl, x, np.zeros(1), evaluations)
    assert 1 <= len(bowl.rows) <= evaluations
    assert np.all(np.abs(polished) <= 1)
    assert np.all(np.abs([row[:-1] for row in bowl.rows]) <= 1)
    assert np.abs(polished - centre).sum() <= np.abs(x - centre).sum()


@pytest.mark.parametrize("evaluations", [1, 4, 12])
def test_values_that_are_no_numbers_are_passed_by(evaluations):
    hole = Counted([0.0], lambda x: float("nan") if x[0] > 0.105 else float(x[0] ** 2))
    x = polish_point(hole, np.array([0.1]), np.zeros(1), evaluations)
    assert x[0] <= 0.1


def test_a_policy_polishes_each_answer_with_the_function():
    class Constant:
        num_inputs = 3

        def mode(self, points):
            return np.full((len(points), 2), 0.25, np.float32)

    bowl = Counted([0.2, 0.3])
    policy = OptimizerPolicy(Constant(), 2, polish=10, function=bowl)
    np.testing.assert_allclose(policy([[0.1], [0.7]]), [bowl.centre] * 2, atol=1e-5)
    assert {row[2] for row in bowl.rows} == {np.float32(0.1), np.float32(0.7)}
    for wrong in ({"polish": 3}, {"function": bowl}, {"polish": -1, "function": bowl}):
        with pytest.raises(UserError, match="expected polish from 1 on together with a function"):
            OptimizerPolicy(Constant(), 2, **wrong)
