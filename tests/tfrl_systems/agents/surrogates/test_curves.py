"""Curves over contexts: how much they vary, and how many weights they have."""

from __future__ import annotations

import numpy as np

from tfrl_systems.agents.surrogates.curves import Curves, num_anchors

ANCHORS = np.linspace(-1, 1, 16)[:, np.newaxis]


def test_draws_have_a_variance_of_one():
    """Φ Φᵀ is the covariance of a draw at the anchors: 1 on its diagonal."""
    features = Curves(ANCHORS)(ANCHORS)
    np.testing.assert_allclose(np.sum(features**2, axis=1), 1, atol=1e-4)


def test_many_contexts_take_no_more_anchors_than_some():
    assert num_anchors(0) == 0
    assert num_anchors(1) < num_anchors(2)
    assert num_anchors(9) == num_anchors(10)
