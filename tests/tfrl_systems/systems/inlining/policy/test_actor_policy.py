"""Actors that decide 0 or 1 from named integers: as TensorFlow, row by row, loaded, refused."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from tests.tfrl_systems.actor_problems import AGENTS, NAMES, make_agent, observations
from tfrl_systems.policies.export import save_policy
from tfrl_systems.systems.inlining.policy.actor_policy import ActorPolicy

# As an environment names its features: in another order, and more of them.
OFFERED = ("users", "unused", "bit", "cost")


@pytest.fixture(scope="module")
def agent():
    return make_agent(AGENTS["ppo"], "integer", seed=3, hidden_sizes=(8, 8))


@pytest.fixture(scope="module")
def policy(agent, tmp_path_factory):
    directory = tmp_path_factory.mktemp("actor") / "policy"
    save_policy(directory, agent.policy, {"environment": "inlining"})
    return ActorPolicy.load(directory)


@pytest.fixture(scope="module")
def rows():
    observation = observations("integer", 300, np.random.default_rng(1))
    columns = {**observation, "unused": np.arange(300)}
    return np.stack([columns[name] for name in OFFERED], axis=1).astype(np.int64)


def test_it_decides_as_the_agent_s_policy(agent, policy, rows):
    decide = policy.begin("module", OFFERED)
    observation = {name: tf.constant(rows[:, OFFERED.index(name)]) for name in NAMES}
    wanted = agent.policy.action(ts.restart(observation, batch_size=len(rows))).action.numpy()
    decided = decide(rows, 0)
    assert decided.dtype == np.int8 and set(decided.tolist()) == {0, 1}
    # Where the two actions are all but equally likely, rounding decides.
    assert np.mean(decided == wanted) > 0.99
    alone = [decide.decide_row(row, step) for step, row in enumerate(rows.tolist())]
    assert decided.tolist() == alone and decide(rows[:0], 0).shape == (0,)


def test_out_of_its_scope_llvm_decides(agent, policy, tmp_path):
    """Within it the network decides, as it would without a scope."""
    described = {"environment": "inlining", "scope_feature": "scope"}
    save_policy(tmp_path / "policy", agent.policy, described)
    scoped = ActorPolicy.load(tmp_path / "policy")
    assert scoped.fingerprint != policy.fingerprint
    offered = ("bit", "cost", "users", "inlining_default", "scope")
    outside = [[1, 7, 3, default, 0] for default in (0, 1)]
    inlined, inside = [1, 7, 3, 1, 1], [[1, cost, 3, 0, 1] for cost in range(-40, 40)]
    rows = np.array([*outside, inlined, *inside])
    decided = scoped.begin("module", offered)(rows, 0).tolist()
    assert decided[:3] == [0, 1, 1]
    assert decided[3:] == policy.begin("module", offered)(np.array(inside), 0).tolist()


def test_a_policy_of_something_else_is_refused(tmp_path):
    float_agent = make_agent(AGENTS["ppo"], "float")
    save_policy(tmp_path / "policy", float_agent.policy, {"environment": "learn_to_optimize"})
    with pytest.raises(UserError, match="decides 0 or 1 .* found one of learn_to_optimize"):
        ActorPolicy.load(tmp_path / "policy")
