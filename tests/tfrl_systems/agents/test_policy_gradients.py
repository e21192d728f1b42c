"""What holds for PPO and REINFORCE alike: what must not matter, and problems they must solve."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from tests.tfrl_systems import actor_problems, graph_problems
from tests.tfrl_systems.actor_problems import (
    AGENTS,
    assert_same,
    make_agent,
    snapshot,
    train_eagerly,
    two_episodes,
)
from tests.tfrl_systems.graph_problems import BEST_RETURN, GREEDY_RETURN, data_of, greedy_return
from tfrl_systems.agents import policy_gradients, ppo
from tfrl_systems.agents.table import find_agent
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.policies import variables
from tfrl_systems.policies.numpy_actor import NumpyActor

BOTH = pytest.mark.parametrize("name", AGENTS)

QUICK = {"hidden_sizes": (4,)}


@BOTH
def test_padding_changes_nothing_and_lengths_are_not_traced_anew(name, monkeypatch):
    """Not a bit of the state; inlining has another longest module in every iteration."""
    traces, taken_steps = [], policy_gradients.taken_steps
    monkeypatch.setattr(
        policy_gradients, "taken_steps", lambda *args: traces.append(1) or taken_steps(*args)
    )
    agent = make_agent(AGENTS[name], gamma=0.9)
    start = snapshot(agent)
    snapshots = []
    for num_paddings in (0, 1, 2, 7):
        for variable, value in zip(actor_problems.state(agent), start, strict=True):
            variable.assign(value)
        for _ in range(3):
            agent.train(two_episodes(name == "ppo", num_paddings))
        snapshots.append(snapshot(agent))
    for padded in snapshots[1:]:
        assert_same(snapshots[0], padded)
    assert len(traces) == 1


@BOTH
def test_a_group_is_its_own_baseline(name):
    """What a context is worth is far more than what an action changes, and no feature tells it."""
    iterations = {"ppo": 30, "reinforce": 200}[name]
    agent = make_agent(
        AGENTS[name], "integer", group=2, hidden_sizes=(16,), learning_rate=2e-2, gamma=1.0
    )
    generator = np.random.default_rng(0)
    actor = NumpyActor.from_policy(agent.collect_policy)
    packer = variables.Packer(agent.collect_policy.variables())
    for iteration in range(iterations):
        actor.load(packer.to_bytes(iteration))
        agent.train(actor_problems.groups_of_two(actor, 32, generator))
    actor.load(packer.to_bytes(iterations))
    seen = actor_problems.observations("integer", 500, generator)
    assert np.mean(actor.network.mode(seen) == seen["bit"]) > 0.95


def test_a_long_tail_of_advantages_is_cut_off():
    """Padding is 0 and does not count: the median is 2, and three times that 6."""

    def cut(*advantages):
        experience = two_episodes(has_info=False)
        info = {"advantage": tf.constant([advantages], tf.float32)}
        config = ppo.Config(group=2, clip_advantages=3)
        columns = experience.replace(policy_info=info)
        return policy_gradients.advantages_of_groups(config, columns).numpy()[0].tolist()

    assert cut(0, 1, -2, 0, 900, -1, 5, 0, -7) == [0, 1, -2, 0, 6, -1, 5, 0, -6]
    assert cut(0, 0) == [0, 0]


@BOTH
def test_a_seed_decides_every_bit(name):
    """Whatever else was made in the process, and whatever TensorFlow drew, before."""
    settings = {"ppo": {"minibatch_size": 20, "num_epochs": 2}, "reinforce": {}}[name]
    first = make_agent(AGENTS[name], seed=3, **settings)
    tf.random.set_seed(1)
    reseeded = make_agent(AGENTS[name], seed=4, **settings)
    tf.random.normal([3])
    again = make_agent(AGENTS[name], seed=3, **settings)
    assert_same(snapshot(first), snapshot(again))
    assert not np.array_equal(snapshot(first)[0], snapshot(reseeded)[0])
    for agent in (first, again):
        actor_problems.learn(agent, "float", 2, train_fn=train_eagerly)
    assert_same(snapshot(first), snapshot(again))
    names = [[variable.name for variable in agent.trainable_variables] for agent in (first, again)]
    assert names[0] == names[1]


@BOTH
def test_the_learning_rate_falls_by_equal_factors(name):
    agent = make_agent(AGENTS[name], learning_rate=1e-2, final_learning_rate=1e-4, **QUICK)
    rates = []
    for progress in (0, 0.5, 1, 2):
        agent.set_progress(progress)
        rates.append(float(agent.optimizer.learning_rate.numpy()))
    assert rates == pytest.approx([1e-2, 1e-3, 1e-4, 1e-4])
    train_eagerly(agent, two_episodes(name == "ppo"))
    learned = snapshot(agent)[0]
    agent.optimizer.learning_rate = 0.0
    train_eagerly(agent, two_episodes(name == "ppo"))
    np.testing.assert_array_equal(learned, snapshot(agent)[0])


@BOTH
def test_the_standard_deviation_falls_too_and_travels(name):
    settings = {"action_std": 0.5, "search_action_std": 0.05, "final_action_std": 0.0005, **QUICK}
    agent = make_agent(AGENTS[name], **settings)
    actor = NumpyActor.from_policy(agent.collect_policy)
    packer = variables.Packer(agent.collect_policy.variables())
    stds = []
    for progress in (None, 0.1, 0.4, 0.7, 0.8, 0.9, 1):
        if progress is not None:
            agent.set_progress(progress)
        actor.load(packer.to_bytes(0))
        parameters = actor.network.parameters(np.zeros((1, 1), np.float32))
        stds.append(float(parameters["scale_diag"][0, 0]))
    assert stds == pytest.approx([0.5, 0.05, 0.05, 0.05, 0.005, 0.0005, 0.0005])


def test_the_standard_deviation_is_up_to_e_times_greater_in_some_states():
    agent = make_agent(ppo, hidden_sizes=(), state_dependent_std=True)
    kernel, bias = agent.actor_network.trainable_variables
    kernel.assign([[0.0, 1.0]])
    bias.assign([0.0, 0.0])
    states = tf.constant([[-100.0], [0.0], [100.0]])
    stds = agent.actor_network(states)[0].stddev().numpy()[:, 0]
    np.testing.assert_allclose(stds, 0.5 * np.exp([0, 0.5, 1]), rtol=1e-5)


# Agent, problem, settings, iterations, least reward: 0 and 1 are perfect.
SOLVED = [
    pytest.param("ppo", "float", {}, 150, -0.005, marks=pytest.mark.ci),
    pytest.param("ppo", "integer", {"num_epochs": 10}, 60, 0.99, marks=pytest.mark.ci),
    pytest.param("reinforce", "float", {"learning_rate": 1e-2}, 600, -0.005, marks=pytest.mark.ci),
    ("reinforce", "integer", {"learning_rate": 1e-2}, 300, 0.99),
]


@pytest.mark.parametrize("name, kind, settings, iterations, least", SOLVED)
def test_an_agent_learns_to_repeat_what_it_sees(name, kind, settings, iterations, least):
    agent = make_agent(AGENTS[name], kind, **settings)
    actor = actor_problems.learn(agent, kind, iterations)
    seen = actor_problems.observations(kind, 500, np.random.default_rng(9))
    assert actor_problems.rewards(seen, actor.mode(seen)).mean() > least


@pytest.mark.ci
def test_an_agent_learns_to_go_over_the_hill():
    """On graphs, the best sequence begins with steps that gain nothing, beside others that do."""
    iterations = 16
    agent = graph_problems.make_agent(
        ppo, num_epochs=8, minibatch_size=32, learning_rate=5e-3, gradient_clipping=1.0,
        entropy_regularization=0.01,
    )  # fmt: skip
    actor = NumpyActor.from_policy(agent.collect_policy)
    runner = graph_problems.MakeRunner(actor, 16)()
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


@pytest.mark.parametrize(
    "name, settings",
    [
        ("ppo", {"num_epochs": 0}),
        ("ppo", {"gamma": 1.5}),
        ("ppo", {"activation": "gelu"}),
        ("ppo", {"components": 0}),
        # In groups there is no value network.
        ("ppo", {"relative_advantages": True, "group": 2}),
        ("ppo", {"two_policies": True, "group": 2}),
        ("ppo", {"components": 2, "group": 2}),
        ("reinforce", {"hidden_sizes": (64, 0)}),
        ("reinforce", {"episodes_per_update": -1}),
        ("reinforce", {"action_std": float("nan")}),
        ("es", {"noise_std": 0}),
        ("bc_max", {"updates": 0}),
        ("bc_max", {"context_weights": "odd"}),
        ("bc_max", {"bucketed_by": "last"}),
        ("surrogate", {"noise": -1.0}),
        ("world_model", {"real_share": 1.5}),
    ],
)
def test_a_setting_out_of_its_range_is_named(name, settings):
    agent = find_agent(name)
    setting, value = next(iter(settings.items()))
    words = f"{name}: expected {setting} within its range, found {value!r}"
    with pytest.raises(UserError, match=re.escape(words)):
        agent.make_agent(agent.make_config(**settings), *actor_problems.float_specs())


FLOATS, NUMBER = actor_problems.float_specs()
TEXT = ts.time_step_spec({"name": tf.TensorSpec([], tf.string)})
GRAPHS = ts.time_step_spec(tensor_spec.from_spec(graph_problems.specs()))


@pytest.mark.parametrize(
    "settings, seen, action, words",
    [
        ({}, FLOATS, tf.TensorSpec([1], tf.float32), "action: expected a bounded float32 vector"),
        ({}, TEXT, NUMBER, "observation name: expected numbers, found string"),
        ({}, GRAPHS, NUMBER, r"action: expected \(xfer_id, location\), int32 \[2\]"),
        ({"two_policies": True}, FLOATS, NUMBER, "two_policies: expected graphs with pairs"),
        ({"components": 2}, *actor_problems.integer_specs(), "components: expected 1 for other"),
    ],
)
def test_specs_that_no_network_fits_are_named(settings, seen, action, words):
    with pytest.raises(UserError, match=words):
        ppo.make_agent(ppo.Config(**settings), seen, action)
