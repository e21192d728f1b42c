"""Minima that are searched for, against those found by other means."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from environments.learn_to_optimize import solvers
from environments.learn_to_optimize.functions import make_objective
from environments.learn_to_optimize.references import reference_points, truth


def searched(name: str, dimensions: int = 2, free: int = 1):
    """An objective of which nothing is known, so that its minima are searched for."""
    return dataclasses.replace(make_objective(name, dimensions, free), minimiser=None)


@pytest.mark.parametrize(
    "name, dimensions, free, every, precision",
    [
        *((name, 2, 1, 1, 1e-12) for name in ("ackley", "shifted_ackley", "shifted_sphere")),
        ("shifted_ackley", 3, 1, 10, 1e-9),
        ("shifted_ackley", 4, 2, 60, 1e-9),
    ],
)
def test_the_search_finds_the_known_minima(name, dimensions, free, every, precision):
    c = reference_points(free)[::every]
    exact = truth(make_objective(name, dimensions, free), c)
    solution = truth(searched(name, dimensions, free), c)
    assert solution.values == pytest.approx(exact.values, abs=precision)
    assert solution.x == pytest.approx(exact.x, abs=1e-6)


def test_no_other_method_finds_less_of_rotated_rosenbrock():
    """Scipy's differential evolution, polished, in 5 dimensions with 2 free parameters."""
    from scipy import optimize

    objective = make_objective("rotated_rosenbrock", 5, 2)
    c = reference_points(2)[::200]
    for free, value in zip(c, truth(objective, c).values, strict=True):
        evolved = optimize.differential_evolution(
            lambda x, free=free: objective(objective.join(x.T, free)),
            [(-1, 1)] * 3,
            vectorized=True,
            updating="deferred",
            rng=1,
        )
        assert value <= evolved.fun + 1e-9


def test_minima_at_the_edge_and_at_a_kink():
    def function(rows):
        return -rows[:, 0] + np.abs(rows[:, 1] - 0.1) + np.abs(rows[:, 1] + 2 * rows[:, 0] - 2.1)

    x, values = solvers.minimise(function, 2, np.zeros((1, 0)))
    assert x[0] == pytest.approx([1, 0.1], abs=1e-6) and values[0] == pytest.approx(-1, abs=1e-6)
    x, values = solvers.minimise(lambda rows: -rows[:, 0] * rows[:, 1], 1, np.array([[1], [-1]]))
    assert x.tolist() == [[1], [-1]] and values.tolist() == [-1, -1]


def test_the_search_stays_in_the_box():
    """A function need not exist outside of it."""
    lowest, highest = 0.0, 0.0

    def function(rows):
        nonlocal lowest, highest
        lowest, highest = min(lowest, rows.min()), max(highest, rows.max())
        return rows @ [1, -2, 0.5]

    x, _ = solvers.minimise(function, 2, np.array([[0.5]]))
    assert x.tolist() == [[-1, 1]]
    assert (lowest, highest) == (-1, 1)
