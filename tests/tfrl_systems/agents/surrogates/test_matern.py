"""The Matérn-5/2 covariance, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tfrl_systems.agents.surrogates.matern import distances, matern


def test_a_triangle_by_hand():
    """From (0, 0) to (3, 4) it is 5; √5 apart d is 5, and k = (1 + 5 + 25/3) e^-5."""
    distance = distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [1.0, 2.0], [0.0, 0.0]]))
    np.testing.assert_allclose(distance, [[5 * math.sqrt(5), 5, 0]], atol=1e-7)
    _, apart, same = matern(distance)[0]
    assert apart == pytest.approx((6 + 25 / 3) * math.exp(-5))
    assert same == pytest.approx(1)
