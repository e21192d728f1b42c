"""A network of several answers, and the judge that weighs them."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from tests.tfrl_systems import actor_problems
from tfrl_systems.agents import policy_gradients
from tfrl_systems.agents.ppo import Config
from tfrl_systems.networks.mixture import MixtureNetwork


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


def test_each_variable_is_trained_once():
    agent = actor_problems.make_agent(actor_problems.ppo, components=3)
    names = [variable.name for variable in agent.trainable_variables]
    assert len(names) == len(set(names)) == 2 * 6
