"""Quantile normalisation: worked by hand; `test_decision_network.py` has its NumPy twin."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfrl_systems.systems.inlining.policy import normalisation

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
    ],
)
def test_worked_by_hand(data, values, expected):
    assert normalise(data, values, num_knots=5) == expected


def test_ties_lie_at_the_mean_of_their_quantiles():
    # Quantiles 0, ¼, ½, ¾, 1 fall on 1, 1, 1, 2, 4: levels ¼, ¾, 1; stretched to 0, 2/3, 1.
    quantiles = normalise([1, 1, 1, 2, 4], [1, 2, 3, 4], num_knots=5)
    assert quantiles == [0, round(2 / 3 * UNIT) / UNIT, pytest.approx(5 / 6, abs=1 / UNIT), 1]
