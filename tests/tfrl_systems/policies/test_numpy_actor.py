"""The actor: the collect policy in NumPy, with draws that only a seed decides."""

from __future__ import annotations

import functools
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import tensorflow as tf
import tree
from tf_agents.policies import random_tf_policy
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from tests.tfrl_systems import actor_problems, graph_problems
from tests.tfrl_systems.actor_problems import AGENTS, SPECS, make_agent, observations
from tests.tfrl_systems.world_models import chain
from tfrl_systems.agents import ppo
from tfrl_systems.drivers.episode_runner import EpisodeRunner
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.policies import distributions, variables
from tfrl_systems.policies.export import save_policy
from tfrl_systems.policies.numpy_actor import NumpyActor, load_network

NORMALISED = {"normalize_observations": True}

# Agent, problem, settings.
CASES = [
    ("ppo", "float", NORMALISED),
    ("ppo", "float", NORMALISED | {"activation": "relu", "state_dependent_std": True}),
    ("ppo", "float", {"components": 3}),
    ("ppo", "float", {"components": 3, "state_dependent_std": True}),
    ("ppo", "integer", {"hidden_sizes": ()}),
    ("reinforce", "float", {"hidden_sizes": (5,)}),
    ("reinforce", "integer", {"activation": "relu"}),
]


def collect_policy(name: str, kind: str, seed: int = 0, **settings):
    return make_agent(AGENTS[name], kind, seed=seed, **settings).collect_policy


@functools.cache
def learned_agent(case: int):
    """An agent whose collect policy is far from its start, its normaliser too."""
    name, kind, settings = CASES[case]
    agent = make_agent(AGENTS[name], kind, **settings)
    policy = agent.collect_policy
    generator = np.random.default_rng(1)
    for variable in policy.variables():
        if variable.dtype == tf.float32:
            noise = generator.normal(scale=0.5, size=variable.shape)
            # Counts and sums of squares are positive.
            variable.assign(variable + (noise if variable.trainable else 3 * np.abs(noise) + 1))
    agent.actor_network.set_even_share(0.25)
    return agent


def learned_policy(case: int):
    return learned_agent(case).collect_policy


def loaded(case: int) -> NumpyActor:
    policy = learned_policy(case)
    actor = ForkingPickler.loads(ForkingPickler.dumps(NumpyActor.from_policy(policy)))
    assert actor.load(variables.to_bytes(policy.variables(), version=7)) == 7
    return actor


def rows(kind: str, num_rows: int):
    return observations(kind, num_rows, np.random.default_rng(5))


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("num_rows", [1, 8, 300])
def test_distributions_are_those_of_tensorflow(case, num_rows):
    """Up to rounding: NumPy and TensorFlow add up in another order."""
    seen = rows(CASES[case][1], num_rows)
    reference = learned_policy(case).distribution(
        ts.restart(tree.map_structure(tf.constant, seen), num_rows)
    )
    actor = loaded(case)
    step = actor.act(ts.restart(seen, num_rows), np.random.default_rng(0))
    np.testing.assert_allclose(
        actor.entropy(seen), reference.action.entropy(), rtol=1e-4, atol=1e-5
    )
    tree.map_structure(
        functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
        step.info,
        tree.map_structure(np.asarray, reference.info),
    )
    network = actor.network
    mode = reference.action.mode().numpy()
    assert (network.mode(seen) == mode).all() or np.allclose(network.mode(seen), mode, atol=1e-5)
    np.testing.assert_array_equal(network.mode(seen), distributions.mode(network.parameters(seen)))


@pytest.mark.parametrize("settings", [{}, {"components": 2}])
def test_new_values_replace_the_old_ones(settings):
    source = collect_policy("ppo", "float", **settings)
    actor = NumpyActor.from_policy(source)
    packer = variables.Packer(source.variables())
    seen = rows("float", 4)
    actor.load(packer.to_bytes(1))
    before = actor.mode(seen)
    copy = before.copy()
    for variable in source.trainable_variables:
        variable.assign(variable + 0.1)
    assert actor.load(packer.to_bytes(2)) == 2
    expected = source.distribution(ts.restart(tf.constant(seen), 4)).action.mode()
    np.testing.assert_allclose(actor.mode(seen), expected, atol=1e-6)
    np.testing.assert_array_equal(before, copy)
    assert not np.allclose(actor.mode(seen), copy)


def test_the_trainable_variables_alone_are_refused():
    """PPO's observation normaliser is not trainable, and lies in the middle of the variables; the
    standard deviation is not either.
    """
    policy = collect_policy("ppo", "float", **NORMALISED)
    actor = NumpyActor.from_policy(policy)
    data = variables.to_bytes(policy.trainable_variables)
    names = [variable.name for variable in policy.variables() if not variable.trainable]
    with pytest.raises(variables.VariablesError, match="send all of policy.variables()") as caught:
        actor.load(data)
    assert len(names) == 4 + 1
    assert all(name in str(caught.value) for name in names)


def test_a_policy_without_a_twin_is_named():
    time_steps, actions = SPECS["float"]()
    policy = random_tf_policy.RandomTFPolicy(time_steps, actions)
    with pytest.raises(UserError, match="only those have a twin in NumPy"):
        NumpyActor.from_policy(policy)


def test_categorical_draws_and_entropy_worked_by_hand():
    """Shares 1 : 2 : 0 : 1; what is masked by a logit of -inf or the least float is never drawn."""
    for masked in (-np.inf, np.finfo(np.float32).min):
        row = np.array([0, np.log(2), masked, 0], np.float32)
        parameters = {"logits": np.tile(row, (20_000, 1))}
        drawn = distributions.draw(parameters, np.random.default_rng(0))
        shares = np.bincount(drawn, minlength=4) / len(drawn)
        np.testing.assert_allclose(shares, [0.25, 0.5, 0, 0.25], atol=0.02)
        assert shares[2] == 0
        assert distributions.entropy(parameters)[0] == pytest.approx(1.5 * np.log(2))
        assert distributions.mode(parameters)[0] == 1


def test_a_policy_of_both_kinds_of_observations_and_several_actions():
    """Counts, a vector of floats, and 5 actions; PPO's normaliser keeps out."""
    spec = {"b": tf.TensorSpec([2, 2], tf.float32), "a": tf.TensorSpec([3], tf.int32)}
    _, actions = actor_problems.integer_specs(num_actions=5)
    policy = ppo.make_agent(ppo.Config(), ts.time_step_spec(spec), actions).collect_policy
    actor = NumpyActor.from_policy(policy)
    actor.load(variables.to_bytes(policy.variables()))
    generator = np.random.default_rng(3)
    seen = {
        "a": generator.integers(-1000, 1000, (7, 3)).astype(np.int32),
        "b": generator.normal(size=(7, 2, 2)).astype(np.float32),
    }
    distribution = policy.distribution(ts.restart(tree.map_structure(tf.constant, seen), 7)).action
    np.testing.assert_allclose(
        actor.network.parameters(seen)["logits"], distribution.logits_parameter(), atol=1e-6
    )


@pytest.mark.parametrize("name", AGENTS)
def test_what_is_not_allowed_is_never_done(name):
    """The chain fails at a masked action. Training keeps the masked logits apart, too."""
    environment = chain.Chain()
    specs = tensor_spec.from_spec((environment.time_step_spec(), environment.action_spec()))
    agent = AGENTS[name].make_agent(AGENTS[name].Config(hidden_sizes=(8,)), *specs)
    actor = NumpyActor.from_policy(agent.collect_policy)
    runner = EpisodeRunner([environment], actor, 4)
    for number in range(2):
        runner.load(variables.to_bytes(agent.collect_policy.variables(), number))
        experience = runner.run(Chunk(number, 0))
        assert np.isfinite(agent.train(experience.with_usual_length().trajectory).loss)
    seen = tree.map_structure(lambda array: array[:, 0], experience.trajectory.observation)
    now = ts.restart(tree.map_structure(tf.constant, seen), 4)
    distribution = agent.collect_policy.distribution(now).action
    shares = tf.nn.softmax(distribution.logits).numpy()
    assert np.all((shares > 0) == seen["action_mask"])
    logits = actor.network.parameters(seen)["logits"]
    assert np.all((logits > -1e8) == seen["action_mask"])


@pytest.mark.ci
def test_a_saved_policy_of_graphs_does_the_same(tmp_path):
    agent = graph_problems.make_agent(ppo, graph_width=4, graph_rounds=1)
    save_policy(tmp_path / "policy", agent.policy, {"environment": "tensor_graphs"})
    network = load_network(tmp_path / "policy")
    seen = graph_problems.batch(graph_problems.make_environment().reset().observation)
    saved = tf.saved_model.load(str(tmp_path / "policy"))
    step = tree.map_structure(tf.constant, ts.restart(seen, 1))
    np.testing.assert_array_equal(saved.action(step, ()).action, network.mode(seen))
