"""The model's arithmetic: mixtures, two-hot rewards, permits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec

from tests.tfrl_systems.world_models.conftest import make_model
from tfrl_systems.agents.world_model import Config
from tfrl_systems.world_models import mdn_rnn
from tfrl_systems.world_models.mdn_rnn import Predicted, WorldModel


def predicted(**fields) -> Predicted:
    """One member, one row, two components of two coordinates."""
    nothing = {
        "mixture_logits": np.zeros((1, 1, 2)),
        "means": np.zeros((1, 1, 2, 2)),
        "log_stds": np.zeros((1, 1, 2, 2)),
        "rewards": np.zeros((1, 1, 1)),
        "end_logits": np.zeros((1, 1)),
        "allowed_logits": np.zeros((1, 1, 0)),
        "log_places": np.zeros((1, 1, 0)),
    }
    return Predicted(*[tf.constant(field, tf.float32) for field in (nothing | fields).values()])


def test_density_of_a_mixture():
    """Shares 3/4 and 1/4; at z = (1, 0) the first is one σ = 2 off, the second right."""
    mixture = predicted(
        mixture_logits=np.log([[[3.0, 1.0]]]),
        means=np.array([[[[-1.0, 0.0], [1.0, 0.0]]]]),
        log_stds=np.log([[[[2.0, 1.0], [0.5, 1.0]]]]),
    )
    first = 0.75 * math.exp(-0.5) / (2 * 1)
    second = 0.25 / (0.5 * 1)
    expected = math.log((first + second) / (2 * math.pi))
    density = mdn_rnn.mixture_log_density(mixture, tf.constant([[1.0, 0.0]]))
    assert density.numpy() == pytest.approx(expected, rel=1e-5)
    # (3 (-1, 0) + (1, 0)) / 4
    np.testing.assert_allclose(mdn_rnn.mean_latents(mixture), [[-0.5, 0]], atol=1e-6)


@pytest.mark.parametrize(
    ("temperature", "share"), [(0.0, 1), (0.5, 16 / 17), (1.0, 4 / 5), (2.0, 2 / 3)]
)
def test_temperature_by_hand(temperature, share):
    """π = 1/5, 4/5: the logits 0, ln 4 divided by τ have odds 1 : 4^(1/τ). σ = 0.01 grows by √τ.

    The thesis's equation (3.4.1) is the first; Ha and Schmidhuber have the second, too.
    """
    count = 20_000
    mixture = predicted(
        mixture_logits=np.tile(np.log([1.0, 4.0]), (1, count, 1)),
        means=np.tile([[0.0, 0.0], [1.0, 1.0]], (1, count, 1, 1)),
        log_stds=np.full((1, count, 2, 2), np.log(0.01)),
    )
    members = tf.zeros([count], tf.int32)
    drawn = mdn_rnn.sample_latents(mixture, members, temperature, tf.constant([1, 2])).numpy()
    is_second = drawn[:, 0] > 0.5
    assert np.mean(is_second) == pytest.approx(share, abs=0.01)
    std = 0.01 * math.sqrt(temperature)
    assert np.std(drawn[is_second] - 1) == pytest.approx(std, rel=0.02, abs=1e-4)


def test_two_hot_rewards_mean_what_they_should():
    model = make_model()
    model.reward_scale.assign(2.0)
    rewards = np.array([0.0, 1.0, -3.7, 25.0, 290.0], np.float32)
    shares = model.two_hot(rewards / 2).numpy()
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-5)
    assert np.all((shares > 0).sum(axis=1) <= 2)
    beyond = model.two_hot(np.array([1e6, -1e6], np.float32)).numpy()
    assert beyond[0, -1] == beyond[1, 0] == 1
    logits = tf.math.log(shares + 1e-30)[tf.newaxis]
    prediction = predicted()._replace(rewards=logits)
    np.testing.assert_allclose(model.rewards(prediction)[0], rewards, rtol=1e-4, atol=1e-4)


def test_permits_are_a_majority_and_places_are_whole():
    specs = {
        "state": tf.TensorSpec([2], tf.float32),
        "num_places": tensor_spec.BoundedTensorSpec([3], tf.int32, 0, 4),
    }
    action = tensor_spec.BoundedTensorSpec([2], tf.int32, [0, 0], [2, 3])
    model = WorldModel(specs, action, Config(num_members=2), np.random.default_rng(0))
    logits = np.array([[[2.0, 2.0, -1.0]], [[2.0, -3.0, -1.0]]])
    places = np.log1p([[[2.4, 3.0, 3.0]], [[2.4, 3.0, 3.0]]])
    prediction = predicted()._replace(
        allowed_logits=tf.constant(logits, tf.float32),
        log_places=tf.constant(places, tf.float32),
    )
    assert model.permitted(prediction).numpy().tolist() == [[2, 0, 0]]
    assert model.permitted(prediction).dtype == tf.int32
