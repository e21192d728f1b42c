"""Specs and made-up call sites for the tests of decision policies."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from tfrl_systems.systems.inlining.imitation import agent as decision_agent
from tfrl_systems.systems.inlining.imitation.agent import labelled_experience

NAMES = ("cost_estimate", "inlining_default", "callee_users", "caller_blocks", "flag")

SMALL = {"num_models": 2, "hidden_sizes": (16, 8), "epochs": 12}
"""Settings that train in a second."""

LOGIT_STEP = 256
"""The least difference, in fixed point, between logits that networks on their grid can give."""


def specs(names: tuple[str, ...] = NAMES) -> tuple[ts.TimeStep, tensor_spec.BoundedTensorSpec]:
    observation = {name: tf.TensorSpec([], tf.int64, name) for name in names}
    return ts.time_step_spec(observation), tensor_spec.BoundedTensorSpec([], tf.int64, 0, 1)


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


def time_steps(rows: np.ndarray, names: tuple[str, ...] = NAMES) -> ts.TimeStep:
    observation = {name: tf.constant(rows[:, i], tf.int64) for i, name in enumerate(names)}
    return ts.restart(observation, batch_size=len(rows))


def make_agent(**settings) -> decision_agent.DecisionAgent:
    return decision_agent.make_agent(decision_agent.Config(**(SMALL | settings)), *specs())


@functools.cache
def trained_agent() -> decision_agent.DecisionAgent:
    """One agent for the tests that only ask it."""
    agent = make_agent(margin=0.3)
    rows = draw(3000, 1)
    agent.train(*labelled_experience(NAMES, rows, labels(rows)))
    return agent


def answer(agent: decision_agent.DecisionAgent, logit_steps: int) -> None:
    """Make the agent's first network give this logit in fixed point everywhere, the others 0."""
    for variable in agent.collect_policy.model.grid:
        variable.assign(tf.zeros_like(variable))
    bias = agent.collect_policy.model.grid[-1]
    assert logit_steps % LOGIT_STEP == 0
    bias.assign(tf.concat([[[[logit_steps // LOGIT_STEP]]], bias[1:]], axis=0))
