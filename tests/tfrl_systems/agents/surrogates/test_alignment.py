"""Where a fit begins: at a curve through the best trials of contexts that have several."""

from __future__ import annotations

import numpy as np

from tfrl_systems.agents.surrogates.alignment import aligned, ranks_in_context
from tfrl_systems.agents.surrogates.curves import Curves
from tfrl_systems.agents.surrogates.gaussian_process import make_kernel


def test_ranks_by_hand():
    contexts = np.array([[0.5], [-1.0], [0.5], [0.5], [0.0]])
    values = np.array([3.0, 7.0, 1.0, 2.0, 0.0])
    np.testing.assert_array_equal(ranks_in_context(contexts, values), [2, -1, 0, 1, -1])


def test_the_curve_leads_to_ripples_that_are_several_apart():
    """Ripples are 0.2 apart, and their deepest moves by 1.2, so no gradient leads there."""
    x, c = np.meshgrid(np.linspace(-1, 1, 21), np.linspace(-1, 1, 6))
    points = np.stack([x.ravel(), c.ravel()], axis=1)
    distance = points[:, 0] - 0.6 * points[:, 1]
    values = distance**2 + 0.2 * (1 - np.cos(10 * np.pi * distance))
    kernel = make_kernel(1, 1, Curves(np.linspace(-1, 1, 5)[:, np.newaxis]))
    theta = aligned(kernel, kernel.usual, points, values)
    assert theta is not None
    along = np.stack([0.6 * c[:, 0], c[:, 0]], axis=1)
    moved = kernel.relative(theta, along)[:, 0]
    np.testing.assert_allclose(moved, moved.mean(), atol=0.03)
