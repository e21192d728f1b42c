"""PPO and REINFORCE: numbers worked by hand, what must not matter, and problems they must solve."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tree
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from tests.tfrl_systems import actor_problems
from tests.tfrl_systems.actor_problems import AGENTS, assert_same, episode, make_agent, snapshot
from tfrl_systems import episodes
from tfrl_systems.agents import policy_gradients, ppo, reinforce
from tfrl_systems.policies import variables
from tfrl_systems.policies.numpy_actor import NumpyActor

BOTH = pytest.mark.parametrize("name", AGENTS)

QUICK = {"hidden_sizes": (4,)}

# Without a hidden layer, and after `set_value`, V(s) = s.
PLAIN = {"hidden_sizes": (), "gamma": 0.5}
PLAIN_PPO = PLAIN | {
    "gae_lambda": 0.5,
    "normalize_observations": False,
    "normalize_rewards": False,
    "num_epochs": 1,
    "relative_advantages": False,
}


def set_value(agent, slope: float) -> None:
    """V(s) = slope · s."""
    net = agent._value_net if isinstance(agent, ppo.PPOAgent) else agent._value_network
    kernel, bias = net.variables
    kernel.assign([[slope]])
    bias.assign([0.0])


def experience(has_info: bool, num_paddings: int = 0):
    """An episode of three steps and one of one, [2, 3 + num_paddings]."""
    long = episode([1, 2, 4], [0.5, -0.5, 0], [1, 0, 3], has_info)
    short = episode([2], [1], [5], has_info)
    together = tree.map_structure(lambda *arrays: np.concatenate(arrays), long, short)
    stacked = episodes.split_episodes(together, [3, 1])
    last = tree.map_structure(lambda array: np.repeat(array[1:, -1:], 2, axis=0), stacked)
    assert (last.step_type == ts.StepType.LAST).all()
    return tree.map_structure(
        lambda array, padding: np.concatenate([array, *[padding] * num_paddings], axis=1),
        stacked,
        last,
    )


def test_advantages_of_ppo_worked_by_hand():
    """γ = λ = 1/2 and V(s) = s:

    step   s   r   δ = r + γ s' - s     Â = δ + γ λ Â'     Â + s
    0      1   1   1 + 1 - 1 = 1        1 - 1/16           31/16
    1      2   0   0 + 2 - 2 = 0        0 - 1/4             7/4
    2      4   3   3 + 0 - 4 = -1       -1                  3
    0      2   5   5 + 0 - 2 = 3        3                   5
    """
    agent = make_agent(ppo, **PLAIN_PPO)
    set_value(agent, 1.0)
    steps = agent._taken_steps(tree.map_structure(tf.constant, experience(has_info=True)))
    assert steps.policy_info["advantage"].numpy().tolist() == [[15 / 16, -1 / 4, -1, 3]]
    assert steps.policy_info["return"].numpy().tolist() == [[31 / 16, 7 / 4, 3, 5]]
    assert steps.observation.numpy().tolist() == [[[1], [2], [4], [2]]]


def test_relative_advantages_worked_by_hand(monkeypatch):
    """V(s) = 0, usual size e^s, γ = 0: each return by its e^s, then to mean 0 and variance 1.

    The value loss is the mean of r², and of (s - log |r|)²; it is weighted by 1/2.
    """
    agent = make_agent(ppo, **PLAIN_PPO | {"relative_advantages": True, "gamma": 0.0})
    kernel, bias = agent._value_net.variables
    kernel.assign([[0.0, 1.0]])
    bias.assign([0.0, 0.0])
    seen = []
    inner = agent.get_loss
    monkeypatch.setattr(
        agent, "get_loss", lambda *args, **more: seen.append(args[4]) or inner(*args, **more)
    )
    loss_info = agent._train(tree.map_structure(tf.constant, experience(has_info=True)))
    rewards, states = np.array([1, 1e-20, 3, 5]), np.array([1, 2, 4, 2])
    relative = np.array([1, 0, 3, 5]) / np.exp(states)
    relative -= relative.mean()
    np.testing.assert_allclose(seen[0][0], relative / relative.std(), rtol=1e-4)
    logs = np.log(rewards + 1e-4)
    loss = 0.5 * (35 / 4 + np.mean((states - logs) ** 2))
    assert loss_info.extra.value_estimation_loss.numpy() == pytest.approx(loss, rel=1e-4)


def test_returns_of_reinforce_worked_by_hand(monkeypatch):
    """γ = 1/2 and V(s) = s:

    step   s   r   G = r + γ G'   G - s
    0      1   1   1 + 3/4         3/4
    1      2   0   0 + 3/2        -1/2
    2      4   3   3              -1
    0      2   5   5               3
    """
    agent = make_agent(reinforce, normalize_advantages=False, value_weight=0.5, **PLAIN)
    set_value(agent, 1.0)
    seen = []
    inner = agent.policy_gradient_loss
    monkeypatch.setattr(
        agent, "policy_gradient_loss", lambda *args: seen.append(args[3].numpy()) or inner(*args)
    )
    loss = agent._train(tree.map_structure(tf.constant, experience(has_info=False)))
    assert seen[0].tolist() == [[3 / 4, -1 / 2, -1, 3]]
    squares = 9 / 16 + 1 / 4 + 1 + 9
    assert loss.extra.value_estimation_loss.numpy() == pytest.approx(0.5 * squares / 2)


def test_reinforce_takes_some_episodes_at_a_time():
    """One at a time: the same as two trainings with one episode each."""
    settings = {**PLAIN, "normalize_advantages": False, "hidden_sizes": (4,)}
    parted, whole = (make_agent(reinforce, episodes_per_update=n, **settings) for n in (1, 0))
    both = experience(has_info=False)
    parted.train(both)
    for row in (0, 1):
        whole.train(tree.map_structure(lambda array, row=row: array[row : row + 1], both))
    for actual, expected in zip(snapshot(parted), snapshot(whole), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-7)


def test_a_step_that_went_as_expected_counts_in_ppo():
    """Return 0 and advantage 0, which TF-Agents takes for unknown: V is 0 everywhere."""
    agent = make_agent(ppo, **PLAIN_PPO, value_weight=1.0)
    set_value(agent, 0.0)
    rows = [episode([1], [0.1], [reward], has_info=True) for reward in (0, 2)]
    loss = agent.train(tree.map_structure(lambda *arrays: np.stack(arrays), *rows))
    assert loss.extra.value_estimation_loss == pytest.approx((0 + 4) / 2)


@BOTH
def test_padding_changes_nothing_and_lengths_are_not_traced_anew(name):
    """Not a bit of the state; inlining has another longest module in every iteration."""
    agent = make_agent(AGENTS[name], gamma=0.9)
    start = snapshot(agent)
    snapshots = []
    for num_paddings in (0, 1, 2, 7):
        for variable, value in zip(actor_problems.state(agent), start, strict=True):
            variable.assign(value)
        for _ in range(3):
            agent.train(experience(name == "ppo", num_paddings))
        snapshots.append(snapshot(agent))
    for padded in snapshots[1:]:
        assert_same(snapshots[0], padded)
    assert agent._train_fn.num_traces == 1


@BOTH
def test_a_seed_decides_every_bit(name):
    """Whatever else was made in the process, and whatever TensorFlow drew, before."""
    first = make_agent(AGENTS[name], seed=3)
    tf.random.set_seed(1)
    reseeded = make_agent(AGENTS[name], seed=4)
    tf.random.normal([3])
    again = make_agent(AGENTS[name], seed=3)
    assert_same(snapshot(first), snapshot(again))
    assert not np.array_equal(snapshot(first)[0], snapshot(reseeded)[0])
    for agent in (first, again):
        actor_problems.learn(agent, "float", 5)
    assert_same(snapshot(first), snapshot(again))
    names = [[each.name for each in agent.trainable_variables] for agent in (first, again)]
    assert names[0] == names[1]


@BOTH
def test_a_restored_agent_goes_on_as_if_nothing_had_happened(name, tmp_path):
    agents = [make_agent(AGENTS[name], seed=seed, **QUICK) for seed in (0, 1)]
    agents[0].train(experience(name == "ppo"))
    path = str(tmp_path / "state")
    tf.train.Checkpoint(agent=agents[0]).write(path)
    tf.train.Checkpoint(agent=agents[1]).read(path).assert_existing_objects_matched()
    for agent in agents:
        agent.set_progress(0.5)
        agent.train(experience(name == "ppo"))
    assert_same(*map(snapshot, agents))


@BOTH
def test_the_learning_rate_falls_by_equal_factors(name):
    agent = make_agent(AGENTS[name], learning_rate=1e-2, final_learning_rate=1e-4, **QUICK)
    rates = []
    for progress in (0, 0.5, 1, 2):
        agent.set_progress(progress)
        rates.append(float(agent.optimizer.learning_rate.numpy()))
    assert rates == pytest.approx([1e-2, 1e-3, 1e-4, 1e-4])
    agent.train(experience(name == "ppo"))
    learned = snapshot(agent)[0]
    agent.optimizer.learning_rate = 0.0
    agent.train(experience(name == "ppo"))
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
    ("ppo", "float", {}, 150, -0.005),
    ("ppo", "integer", {"num_epochs": 10}, 60, 0.99),
    ("reinforce", "float", {"learning_rate": 1e-2}, 600, -0.005),
    ("reinforce", "integer", {"learning_rate": 1e-2}, 300, 0.99),
]


@pytest.mark.parametrize("name, kind, settings, iterations, least", SOLVED)
def test_an_agent_learns_to_repeat_what_it_sees(name, kind, settings, iterations, least):
    agent = make_agent(AGENTS[name], kind, **settings)
    actor = actor_problems.learn(agent, kind, iterations)
    seen = actor_problems.observations(kind, 500, np.random.default_rng(9))
    assert actor_problems.rewards(seen, actor.mode(seen)).mean() > least


def test_adam_worked_by_hand():
    """The first step is the learning rate times the gradient's sign, nearly; norms are cut off."""
    variable = tf.Variable([1.0, 2.0])
    adam = policy_gradients.adam.Adam(0.1, [variable], max_norm=1.0)
    adam.apply_gradients([(tf.constant([3.0, -4.0]), variable)])
    np.testing.assert_allclose(variable.numpy(), [0.9, 2.1], atol=1e-4)
    np.testing.assert_allclose(adam._momentums[0].numpy(), [0.06, -0.08], rtol=1e-5)
    keras = tf.keras.optimizers.Adam(0.1, epsilon=1e-5)
    twin = tf.Variable([1.0, 2.0])
    keras.apply_gradients([(tf.constant([0.6, -0.8]), twin)])
    for gradient in ([0.1, 0.2], [-0.3, 0.1]):
        adam.apply_gradients([(tf.constant(gradient), variable)])
        keras.apply_gradients([(tf.constant(gradient), twin)])
    np.testing.assert_allclose(variable.numpy(), twin.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    "name, settings, words",
    [
        ("ppo", {"num_epochs": 0}, "ppo: expected num_epochs within its range, found 0"),
        ("ppo", {"gamma": 1.5}, "gamma"),
        ("ppo", {"activation": "gelu"}, "activation within its range, found 'gelu'"),
        ("reinforce", {"hidden_sizes": (64, 0)}, "reinforce: expected hidden_sizes"),
        ("reinforce", {"episodes_per_update": -1}, "reinforce: expected episodes_per_update"),
        ("reinforce", {"action_std": float("nan")}, "action_std"),
    ],
)
def test_settings_out_of_range_are_named(name, settings, words):
    with pytest.raises(UserError, match=words):
        make_agent(AGENTS[name], **settings)


@BOTH
def test_specs_that_no_network_fits_are_named(name):
    module = AGENTS[name]
    time_steps, actions = actor_problems.float_specs()
    unbounded = tf.TensorSpec([1], tf.float32, "action")
    with pytest.raises(UserError, match="action: expected a bounded float32 vector"):
        module.make_agent(module.Config(), time_steps, unbounded)
    text = ts.time_step_spec({"name": tf.TensorSpec([], tf.string)})
    with pytest.raises(UserError, match="observation name: expected numbers, found string"):
        module.make_agent(module.Config(), text, actions)


@BOTH
def test_array_specs_of_an_environment_do_as_well(name):
    module = AGENTS[name]
    observation = array_spec.BoundedArraySpec([3], np.float32, -1, 1, "observation")
    action = array_spec.BoundedArraySpec([2], np.float32, -1, 1, "action")
    agent = module.make_agent(module.Config(), ts.time_step_spec(observation), action)
    step = ts.restart(tf.zeros([4, 3]), batch_size=4)
    assert agent.policy.action(step).action.shape == (4, 2)
