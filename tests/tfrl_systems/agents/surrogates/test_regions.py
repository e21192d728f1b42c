"""A region around a curve: its coordinates by hand, and the curve that is best for all contexts."""

from __future__ import annotations

import numpy as np

from tfrl_systems.agents.surrogates.curves import Curves
from tfrl_systems.agents.surrogates.regions import Region, evenly

CURVES = Curves(np.linspace(-1, 1, 8)[:, np.newaxis])
CONTEXTS = np.linspace(-1, 1, 33)[:, np.newaxis]


def half_of_c():
    return CURVES.through(CONTEXTS, 0.5 * CONTEXTS)


def test_coordinates_by_hand():
    """Around x = c / 2 with radius 0.1, x = 0.3 at c = 0.4 is one radius up; the box ends at 1."""
    region = Region(CURVES, half_of_c(), radius=0.1, is_whole=False)
    points = np.array([[0.3, 0.4], [0.2, 0.4], [-0.25, 0.0]])
    relative = region.relative(points)
    np.testing.assert_allclose(relative[:, 0], [1, 0, -2.5], atol=0.05)
    np.testing.assert_allclose(region.absolute(relative), points)
    assert region.is_near(relative).tolist() == [True, True, False]
    assert region.absolute(np.array([[9.0, 0.9]]))[0, 0] == 1


def test_the_best_curve_is_that_of_the_minima_and_ripples_do_not_hold_it():
    generator = np.random.default_rng(0)
    points = evenly(2, 128, generator)
    distance = points[:, 0] - 0.5 * points[:, 1]
    region = Region(CURVES, np.zeros((8, 1)))
    region.fit(points, 3 * distance**2 - 0.2 * np.cos(12 * distance), None, refit=True)
    best = CURVES(CONTEXTS) @ region.best_curve(CONTEXTS, generator)
    np.testing.assert_allclose(best, 0.5 * CONTEXTS, atol=0.03)
