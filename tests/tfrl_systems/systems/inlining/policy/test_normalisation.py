"""Quantile normalisation: worked by hand, and equal to its NumPy twin."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.tfrl_systems.systems.inlining import decision_rows
from tfrl_systems.systems.inlining.policy import normalisation, numpy_networks

UNIT = normalisation.UNIT


def normalise(data: list[int], values: list[int], num_knots: int) -> list[float]:
    layer = normalisation.QuantileNormalisation(1, num_knots)
    layer.learn(np.array(data)[:, np.newaxis])
    return (layer(tf.constant(values, tf.int64)[:, tf.newaxis])[:, 0] / UNIT).numpy().tolist()


@pytest.mark.parametrize(
    "data, values, expected",
    [
        # Knots 0, 10, 20, 30, 40 at quarters; linear between them, flat outside.
        ([0, 10, 20, 30, 40], [-5, 0, 5, 10, 25, 40, 99], [0, 0, 0.125, 0.25, 0.625, 1, 1]),
        # Tails: most rows lie low, and get most of the range.
        ([0, 1, 2, 3, 1000], [0, 1, 2, 3, 1000], [0, 0.25, 0.5, 0.75, 1]),
        # Two values, one of them rare: 0 and 1 whatever their shares.
        ([0, 0, 0, 0, 1], [0, 1], [0, 1]),
        # Constant: always 0, beside the only value too.
        ([7, 7, 7], [6, 7, 8], [0, 0, 0]),
        ([3], [3, 4], [0, 0]),
    ],
)
def test_worked_by_hand(data, values, expected):
    assert normalise(data, values, num_knots=5) == expected


def test_ties_lie_at_the_mean_of_their_quantiles():
    # Quantiles 0, ¼, ½, ¾, 1 fall on 1, 1, 1, 2, 4: levels ¼, ¾, 1; stretched to 0, 2/3, 1.
    quantiles = normalise([1, 1, 1, 2, 4], [1, 2, 3, 4], num_knots=5)
    assert quantiles == [0, round(2 / 3 * UNIT) / UNIT, pytest.approx(5 / 6, abs=1 / UNIT), 1]


def test_rising_and_within_bounds():
    data = decision_rows.draw(2000, 3)[:, :1]
    layer = normalisation.QuantileNormalisation(1, 33)
    layer.learn(data)
    line = np.sort(np.concatenate([data[:, 0], np.arange(-3000, 3000)]))
    quantiles = layer(tf.constant(line[:, np.newaxis])).numpy()[:, 0]
    assert np.all(np.diff(quantiles) >= 0)
    assert (quantiles.min(), quantiles.max()) == (0, UNIT)
    assert len(np.unique(quantiles)) > 200


@pytest.mark.parametrize("num_knots", [2, 17, 64])
def test_numpy_twin_agrees_on_every_bit(num_knots):
    layer = normalisation.QuantileNormalisation(len(decision_rows.NAMES), num_knots)
    layer.learn(decision_rows.draw(500, 4))
    rows = np.concatenate([decision_rows.draw(2000, 5), decision_rows.wild(2000, 6)])
    normalised = layer(tf.constant(rows)).numpy()
    num_features = len(decision_rows.NAMES)
    for number, column in enumerate(np.eye(num_features) * UNIT):
        # A network of one weight passes one feature on: 1 of the grid is 256 of the fixed point.
        weights = {"weights_0": column[np.newaxis, :, np.newaxis], "biases_0": np.zeros((1, 1, 1))}
        twin = numpy_networks.NumpyNetworks(layer.arrays() | weights, num_features)
        np.testing.assert_array_equal(twin.votes(rows), 256 * normalised[:, number])
