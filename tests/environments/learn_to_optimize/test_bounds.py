"""Each form in which people write the domain of a function."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from environments.errors import UserError
from environments.learn_to_optimize.loading import read_bounds


@pytest.mark.parametrize(
    "dimensions, bounds, low, high",
    [
        (3, (-1, 2), [-1, -1, -1], [2, 2, 2]),
        (3, (-1, [1, 2, 9]), [-1, -1, -1], [1, 2, 9]),
        (2, ([-5, -5], [5, 5]), [-5, -5], [5, 5]),
        (2, [(-5, 5), (0, 3)], [-5, 0], [5, 3]),
        (2, [(-5, 5), (-5, 5)], [-5, -5], [5, 5]),
        (3, [(-5, 5), (0, 3), (1, 2)], [-5, 0, 1], [5, 3, 2]),
        (1, [(-5, 5)], [-5], [5]),
        (2, np.array([[-5, 5], [0, 3]]), [-5, 0], [5, 3]),
        (2, optimize.Bounds([0, 2], [1, 3]), [0, 2], [1, 3]),
        (3, optimize.Bounds(0, 1), [0, 0, 0], [1, 1, 1]),
        (2, {"low": [0, 2], "high": [1, 3]}, [0, 2], [1, 3]),
    ],
)
def test_forms(dimensions, bounds, low, high):
    domain = read_bounds("f", dimensions, bounds)
    assert [side.tolist() for side in domain] == [low, high]


def test_two_pairs_that_could_be_sides_are_refused():
    """From (0, 2) to (1, 3), or from 0 to 1 and from 2 to 3?"""
    with pytest.raises(UserError, match="may be .low, high. or two pairs; write scipy"):
        read_bounds("f", 2, [(0, 1), (2, 3)])


@pytest.mark.parametrize(
    "bounds",
    [
        *[(1, -1), (0, 0), (-1, np.inf), (np.nan, 1), 3, (1, 2, 3), ("low", "high"), None],
        *[([0, 0], [1, 1]), [(0, 1)] * 4, [(0, 1), (0, 1), (1, 0)], [(0, 1), (0, 1), (0,)]],
        *[{}, {"low": 0}, optimize.Bounds(1, 0), optimize.Bounds()],
    ],
)
def test_what_are_no_bounds_of_three_dimensions(bounds):
    with pytest.raises(UserError, match=r"f: expected bounds \(low, high\), each .* 3 of them"):
        read_bounds("f", 3, bounds)
