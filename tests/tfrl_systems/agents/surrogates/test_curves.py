"""Curves over contexts: how much they vary, and how many weights they have."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tfrl_systems.agents.surrogates.curves import Curves, distances, matern

ANCHORS = np.linspace(-1, 1, 16)[:, np.newaxis]


def test_draws_have_a_variance_of_one():
    """Φ Φᵀ is the covariance of a draw at the anchors: 1 on its diagonal."""
    features = Curves(ANCHORS)(ANCHORS)
    np.testing.assert_allclose(np.sum(features**2, axis=1), 1, atol=1e-4)


def test_a_triangle_by_hand():
    """From (0, 0) to (3, 4) it is 5; √5 apart d is 5, and k = (1 + 5 + 25/3) e^-5."""
    distance = distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [1.0, 2.0], [0.0, 0.0]]))
    np.testing.assert_allclose(distance, [[5 * math.sqrt(5), 5, 0]], atol=1e-7)
    _, apart, same = matern(distance)[0]
    assert apart == pytest.approx((6 + 25 / 3) * math.exp(-5))
    assert same == pytest.approx(1)
