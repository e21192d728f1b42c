"""Made-up call sites for the tests of decision policies."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf
from tf_agents.policies import greedy_policy
from tf_agents.trajectories import time_step as ts

from tfrl_systems.systems.inlining.imitation import cloning
from tfrl_systems.systems.inlining.policy.decision_policy import DecisionPolicy, to_numpy

NAMES = ("cost_estimate", "inlining_default", "callee_users", "caller_blocks", "flag")

SMALL = {"num_models": 2, "hidden_sizes": (16, 8), "epochs": 12}
"""Settings that train in a second."""

LOGIT_STEP = 256
"""The least difference, in fixed point, between logits that networks on their grid can give."""


def draw(num_rows: int, seed: int) -> np.ndarray:
    """Heavy-tailed call sites, int64 [N, 5], columns as NAMES; the default is cost < 5."""
    rng = np.random.default_rng(seed)
    cost = np.clip(np.rint(rng.standard_cauchy(num_rows) * 30), -1e6, 1e6)
    users = np.floor(rng.exponential(4, num_rows)) - 1
    blocks = np.rint(np.exp(rng.normal(3, 1.5, num_rows)))
    flag = rng.integers(-1, 2, num_rows)
    return np.stack([cost, cost < 5, users, blocks, flag], axis=1).astype(np.int64)


def wild(num_rows: int, seed: int) -> np.ndarray:
    """Rows from all of int64's range, its ends included."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-(2**62), 2**62, (num_rows, len(NAMES))) >> rng.integers(
        0, 62, (num_rows, len(NAMES))
    )
    rows[0], rows[1] = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    return rows


def labels(rows: np.ndarray) -> np.ndarray:
    """A rule with several features, and some noise that does not depend on the order of rows."""
    noisy = rows[:, 0] % 7 == 0
    return ((rows[:, 0] < 20 * rows[:, 4] + rows[:, 2]) ^ noisy).astype(np.int64)


def time_steps(rows: np.ndarray) -> ts.TimeStep:
    observation = {name: tf.constant(rows[:, i], tf.int64) for i, name in enumerate(NAMES)}
    return ts.restart(observation, batch_size=len(rows))


def make_policy(**settings) -> DecisionPolicy:
    """A policy that was not fitted to anything."""
    return cloning.make_policy(cloning.Config(**(SMALL | settings)), NAMES)


def fit(rows: np.ndarray, actions: np.ndarray, weights=None, **settings) -> DecisionPolicy:
    return cloning.fit(cloning.Config(**(SMALL | settings)), NAMES, rows, actions, weights)


@functools.cache
def trained() -> DecisionPolicy:
    """One policy for the tests that only ask it."""
    rows = draw(3000, 1)
    return fit(rows, labels(rows), margin=0.3)


@functools.cache
def greedy() -> greedy_policy.GreedyPolicy:
    """The same, as runs save it."""
    return greedy_policy.GreedyPolicy(trained())


def decide(policy: DecisionPolicy, rows: np.ndarray) -> np.ndarray:
    """The actions that NumPy takes at some rows; they are TensorFlow's."""
    decisions = to_numpy(policy).begin("module", NAMES)(rows, 0)
    step = greedy_policy.GreedyPolicy(policy).action(time_steps(rows))
    np.testing.assert_array_equal(decisions, step.action)
    assert decisions.dtype == np.int8 and step.action.dtype == tf.int64
    return decisions


def answer(policy: DecisionPolicy, logit_steps: int) -> None:
    """Make the policy's first network give this logit in fixed point everywhere, the others 0."""
    for variable in policy.model.grid:
        variable.assign(tf.zeros_like(variable))
    bias = policy.model.grid[-1]
    assert logit_steps % LOGIT_STEP == 0
    bias.assign(tf.concat([[[[logit_steps // LOGIT_STEP]]], bias[1:]], axis=0))
