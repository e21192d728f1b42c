"""PPO and REINFORCE on graphs: what they must solve, and experience that is the same everywhere."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
import tree
from tf_agents.trajectories import time_step as ts

from tests.tfrl_systems import graph_problems
from tests.tfrl_systems.actor_problems import AGENTS, assert_same, snapshot
from tests.tfrl_systems.graph_problems import BEST_RETURN, GREEDY_RETURN, MakeRunner, make_agent
from tfrl_systems.agents import ppo
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.networks import graph_actors, graph_encoder
from tfrl_systems.policies import distributions, variables
from tfrl_systems.policies.export import save_policy
from tfrl_systems.policies.numpy_actor import NumpyActor, load_network

TINY = {"graph_width": 4, "graph_rounds": 1, "relative_advantages": False}

# Agent, settings, iterations.
LEARNING = [
    (
        "ppo",
        {"num_epochs": 8, "minibatch_size": 32, "learning_rate": 5e-3, "gradient_clipping": 1.0,
         "entropy_regularization": 0.01, "relative_advantages": False},
        16,
    ),
    pytest.param(
        "reinforce", {"learning_rate": 1e-2, "final_learning_rate": 1e-3, "value_weight": 1e-3}, 50,
        marks=pytest.mark.slow,
    ),
]  # fmt: skip


def data_of(agent, version=0) -> bytes:
    return variables.to_bytes(agent.collect_policy.variables(), version)


def greedy_return(network) -> float:
    environment = graph_problems.make_environment()
    step, total = environment.reset(), 0.0
    while not step.is_last():
        (action,) = network.mode(graph_problems.batch(step.observation))
        step = environment.step(action)
        total += float(step.reward)
    return total


@pytest.mark.parametrize("name, settings, iterations", LEARNING, ids=AGENTS)
def test_an_agent_learns_to_go_over_the_hill(name, settings, iterations):
    """The best sequence begins with steps that gain nothing, beside others that do."""
    agent = make_agent(AGENTS[name], **settings)
    actor = NumpyActor.from_policy(agent.collect_policy)
    runner = MakeRunner(actor, 16)()
    returns = []
    for iteration in range(iterations):
        runner.load(data_of(agent))
        agent.set_progress(iteration / iterations)
        experience = runner.run(Chunk(iteration, 0))
        returns.append(experience.mean_return)
        agent.train(experience.with_usual_length().trajectory)
    assert returns[0] < GREEDY_RETURN + 5 and np.mean(returns[-5:]) > 0.8 * BEST_RETURN
    actor.load(data_of(agent))
    assert greedy_return(actor.network) == pytest.approx(BEST_RETURN)


@functools.cache
def experience():
    """Of an agent that has learned nothing."""
    agent = make_agent(ppo, **TINY)
    runner = MakeRunner(NumpyActor.from_policy(agent.collect_policy), 6)()
    runner.load(data_of(agent))
    return runner.run(Chunk(0, 0)).with_usual_length().trajectory


def train(agent) -> None:
    """Once, and without the time that tracing takes."""
    agent._train(tree.map_structure(tf.constant, experience()))


def test_a_seed_decides_every_bit_minibatches_too():
    sizes = {"minibatch_size": 5, "num_epochs": 2, **TINY}
    agents = [make_agent(ppo, seed=seed, **sizes) for seed in (3, 3, 4)]
    first, _, reseeded = map(snapshot, agents)
    assert any((left != right).any() for left, right in zip(first, reseeded, strict=True))
    for agent in agents[:2]:
        train(agent)
    assert_same(*map(snapshot, agents[:2]))


def test_minibatches_are_parts_of_one_size_that_cover_everything():
    agent = make_agent(ppo, minibatch_size=5, num_epochs=2, **TINY)
    learned = ppo._Learned(*[tf.range(17)[tf.newaxis]] * 5)
    num_parts = int(agent._num_parts(learned.advantages))
    assert num_parts == 4
    epochs = []
    for epoch in range(2):
        parts = [
            agent._part(learned, tf.constant(4 * epoch + part), num_parts).returns.numpy()[0]
            for part in range(num_parts)
        ]
        assert {len(part) for part in parts} == {4, 5}
        epochs.append(np.concatenate(parts))
        assert sorted(epochs[-1]) == list(range(17))
    assert epochs[0].tolist() != epochs[1].tolist()


def test_one_minibatch_learns_what_all_do():
    """But for the order of the steps, and so the last bits of their sums."""
    whole, parts = (make_agent(ppo, minibatch_size=size, **TINY) for size in (0, 10**6))
    for agent in (whole, parts):
        train(agent)
    for left, right in zip(snapshot(whole), snapshot(parts), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-4)


def test_an_update_encodes_what_it_learns_from_once(monkeypatch):
    """Not for the policy, and again for the value network."""
    agent = make_agent(ppo, num_epochs=1, **TINY)
    trunk, are_shared = agent.actor_network.trunk, []
    inner = graph_encoder.graphs_of

    def graphs_of(observation):
        are_shared.append(trunk._cache is not None)
        return inner(observation)

    monkeypatch.setattr(graph_encoder, "graphs_of", graphs_of)
    train(agent)
    # Before that, values are computed for the advantages.
    assert are_shared == [False, True]


@pytest.mark.parametrize("head", graph_actors.HEADS)
def test_what_is_kept_is_what_the_policy_had_when_it_acted(head):
    """Log-probabilities from the parameters that the actor gave, and from the policy itself."""
    agent = make_agent(ppo, head=head, **TINY)
    actor = NumpyActor.from_policy(agent.collect_policy)
    runner = MakeRunner(actor, 6)()
    runner.load(data_of(agent))
    steps = agent._taken_steps(tree.map_structure(tf.constant, runner.run(Chunk(0, 0)).trajectory))
    collected = agent._learned(steps).log_probabilities
    now = agent.actor_network(steps.observation)[0].log_prob(steps.action)
    np.testing.assert_allclose(collected, now, rtol=1e-4, atol=1e-5)
    assert np.all(now.numpy() > np.log(1e-6))


def test_numpy_acts_as_tensorflow_does():
    agent = make_agent(ppo, **TINY)
    actor = NumpyActor.from_policy(agent.collect_policy)
    actor.load(data_of(agent))
    seen = graph_problems.batch(*[graph_problems.make_environment().reset().observation] * 3)
    acted = actor.act(ts.restart(seen, 3), np.random.default_rng(1))
    there = agent.collect_policy.distribution(tree.map_structure(tf.constant, ts.restart(seen, 3)))
    parameters = {"logits": there.action.logits.numpy(), "actions": there.action.actions.numpy()}
    drawn = distributions.draw(parameters, np.random.default_rng(1))
    np.testing.assert_array_equal(acted.action, drawn)
    for array, tensor in zip(tree.flatten(acted.info), tree.flatten(there.info), strict=True):
        assert array.dtype == tensor.dtype.as_numpy_dtype
        np.testing.assert_allclose(array, tensor, rtol=1e-4, atol=1e-5)


def test_a_saved_policy_does_the_same(tmp_path):
    agent = make_agent(ppo, **TINY)
    save_policy(tmp_path / "policy", agent.policy, {"environment": "tensor_graphs"})
    network = load_network(tmp_path / "policy", "graph_actor")
    seen = graph_problems.batch(graph_problems.make_environment().reset().observation)
    saved = tf.saved_model.load(str(tmp_path / "policy"))
    step = tree.map_structure(tf.constant, ts.restart(seen, 1))
    np.testing.assert_array_equal(saved.action(step, ()).action, network.mode(seen))
