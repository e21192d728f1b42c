"""A mixture worked by hand, in TensorFlow and in NumPy, and the judge that weighs components."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from environments.errors import UserError
from tests.tfrl_systems import actor_problems
from tfrl_systems.agents import policy_gradients
from tfrl_systems.agents.ppo import Config
from tfrl_systems.networks.mixture import Mixture, MixtureNetwork
from tfrl_systems.policies import distributions

# A quarter of the actions is drawn around 0, the rest around 2.
PARAMETERS = {
    "logits": np.log(np.float32([[0.25, 0.75]])),
    "loc": np.float32([[[0], [2]]]),
    "scale_diag": np.ones((1, 2, 1), np.float32),
}
MIDWAY = math.exp(-0.5) / math.sqrt(2 * math.pi)  # N(1; 0, 1) = N(1; 2, 1)


@pytest.fixture
def mixture():
    return Mixture(**{name: tf.constant(array) for name, array in PARAMETERS.items()})


def test_midway_both_components_are_as_dense(mixture):
    action = tf.constant([[1.0]])
    assert mixture.log_prob(action).numpy() == pytest.approx(math.log(MIDWAY), rel=1e-5)
    np.testing.assert_allclose(mixture.responsibilities(action), [[0.25, 0.75]], rtol=1e-5)


def test_near_one_component_the_action_is_its_own(mixture):
    """At 0 the other is less dense by exp(-2): 1 against 3 exp(-2)."""
    own = 1 / (1 + 3 * math.exp(-2))
    shares = mixture.responsibilities(tf.constant([[0.0]]))
    np.testing.assert_allclose(shares, [[own, 1 - own]], rtol=1e-5)


def test_draws_are_the_same_in_numpy(mixture):
    """Mean 3/4 · 2, variance 1 + 3/4 · 1/4 · 2²."""
    many = {name: np.repeat(array, 20_000, axis=0) for name, array in PARAMETERS.items()}
    for drawn in (
        distributions.draw(many, np.random.default_rng(0)),
        mixture.sample(20_000, seed=(0, 1)).numpy()[:, 0],
    ):
        assert drawn.shape == (20_000, 1) and drawn.dtype == np.float32
        assert (drawn.mean(), drawn.var()) == pytest.approx((1.5, 1.75), abs=0.05)


def test_mode_and_entropy_are_the_same_in_numpy(mixture):
    """The entropy of the component, and of a normal distribution."""
    assert mixture.mode().numpy() == distributions.mode(PARAMETERS) == 2
    of_component = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    expected = of_component + 0.5 * math.log(2 * math.pi * math.e)
    assert mixture.entropy().numpy() == pytest.approx(expected, rel=1e-5)
    assert distributions.entropy(PARAMETERS) == pytest.approx(expected, rel=1e-5)


def network(num_components: int = 4) -> MixtureNetwork:
    config, specs = Config(hidden_sizes=(8,)), actor_problems.float_specs(2, 3)
    return policy_gradients.make_actor(config, *specs, components=num_components)


def judge_says(actor: MixtureNetwork, values: list[float], log_spreads: list[float]) -> None:
    """The same of every observation."""
    layers = actor.named_variables()
    for name in ("judge/kernel_1", "judge/bias_1"):
        layers[name].assign(tf.zeros_like(layers[name]))
    layers["judge/bias_1"].assign([*values, *log_spreads])


SEEN = tf.constant([[0.3, -0.2], [0.9, 0.1]])


def test_components_are_drawn_alike_at_first_and_by_their_values_at_last():
    """Shares e^Q/d, with the distance d = 2 of the best: e^(2/2) and e^(4/2), or 1 : e."""
    actor = network(2)
    judge_says(actor, [2.0, 4.0], [5.0, math.log(2)])
    best = math.e / (1 + math.e)
    for even_share, expected in ((1.0, 0.5), (0.0, best), (0.5, 0.25 + best / 2)):
        actor.set_even_share(even_share)
        weights = np.exp(actor(SEEN)[0].logits)
        np.testing.assert_allclose(weights, [[1 - expected, expected]] * 2, rtol=1e-5)
        value = actor.make_value(None, None, True)(SEEN)[0]
        np.testing.assert_allclose(value, 2 * (1 - expected) + 4 * expected, rtol=1e-5)


def test_the_judge_learns_of_no_probability():
    actor = network()
    actor.set_even_share(0.5)
    with tf.GradientTape() as tape:
        loss = actor(SEEN)[0].log_prob(tf.zeros([2, 3]))
    of_judge = {id(variable) for variable in actor.trainable_variables if "judge" in variable.name}
    gradients = tape.gradient(loss, actor.trainable_variables)
    assert len(of_judge) == 4
    for variable, gradient in zip(actor.trainable_variables, gradients, strict=True):
        assert (gradient is None) == (id(variable) in of_judge)


def test_the_first_answers_lie_apart_and_within_the_box():
    loc = network()(SEEN)[0].loc.numpy()
    apart = np.abs(loc[:, :, np.newaxis] - loc[:, np.newaxis]).max(axis=-1)
    assert np.all(apart[:, ~np.eye(4, dtype=bool)] > 0.05) and np.all(np.abs(loc) < 0.7)


def test_each_variable_is_trained_once():
    agent = actor_problems.make_agent(actor_problems.ppo, components=3)
    names = [variable.name for variable in agent.trainable_variables]
    assert len(names) == len(set(names)) == 2 * 6


def test_only_float_actions_have_several_answers():
    with pytest.raises(UserError, match="components: expected 1 for other actions than float"):
        actor_problems.make_agent(actor_problems.ppo, "integer", components=2)
