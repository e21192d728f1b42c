from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.errors import UserError
from environments.learn_to_optimize.functions import FUNCTIONS, make_objective

COSINE, SINE = math.sqrt(3) / 2, 1 / 2
coordinates = st.floats(-1, 1, allow_nan=False)


# The point in the box is that of the function's own domain over 32.768, 2.048 or 5.12.
@pytest.mark.parametrize(
    "name, half_width, own_point, value",
    [
        # All cosines are 1 at whole numbers: -20 exp(-0.2) - e + e + 20
        ("ackley", 32.768, (1, -1), 3.625384938440363),
        # sqrt(0.5 (0.25 + 0.25)) = 0.5, cosines -1: -20 exp(-0.1) - exp(-1) + e + 20
        ("ackley", 32.768, (0.5, 0.5), 4.253654026568412),
        ("ackley", 32.768, (0, 0, 0, 3, 0), 20 - 20 * math.exp(-0.2 * math.sqrt(9 / 5))),
        # (1 - a)^2 + 100 (b - a^2)^2 of the pairs (0, 1) and (1, 2): 1 + 100 and 0 + 100
        ("rosenbrock", 2.048, (0, 1, 2), 201),
        ("sphere", 5.12, (1, 2, 3, -4), 30),
        # R = [[cos, -sin], [sin, cos]] takes (cos + sin, cos - sin) to (1, 1).
        ("rotated_rosenbrock", 2.048, (COSINE + SINE, COSINE - SINE), 0),
        # (1, 0) is turned to (cos, sin), and its second coordinate squeezed to a quarter.
        ("rotated_sphere", 5.12, (5.12, 0), 26.2144 * (0.75 + 0.25 / 16)),
        # (0, 0, 1): the plane (2, 3) first, to (0, -sin, cos); then (1, 2), to
        # (sin^2, -sin cos, cos). Squeezed by 1, 5/8 and 1/4.
        (
            "rotated_sphere",
            1,
            (0, 0, 1),
            26.2144 * (SINE**4 + (5 / 8 * SINE * COSINE) ** 2 + (COSINE / 4) ** 2),
        ),
        # c = 1 shifts by sin(pi / 2) / 2 = 1/2, c = 1/3 by sin(pi / 6) / 2 = 1/4; c^2 remains.
        ("shifted_sphere", 1, (0.5, 1), 26.2144),
        ("shifted_sphere", 1, (0.25, 1 / 3), 26.2144 / 9),
    ],
)
def test_values_worked_by_hand(name, half_width, own_point, value):
    objective = make_objective(name, len(own_point), 1)
    (answer,) = objective(np.array([own_point]) / half_width)
    assert answer == pytest.approx(value, abs=1e-11)


def test_free_parameters_take_turns_to_shift():
    """x = (x1, x2, x3), c = (c1, c2): x1 and x3 are shifted by c1, x2 by c2."""
    shifted = make_objective("shifted_sphere", 5, 2)
    (value,) = shifted(np.array([[0.5, 0.25, 0.5, 1, 1 / 3]]))
    assert value == pytest.approx(26.2144 * (1 + 1 / 9))
    assert make_objective("ackley", 7, 1)(np.zeros((1, 7))).tolist() == [0.0], "exactly"


@settings(max_examples=30)
@given(st.sampled_from(FUNCTIONS), st.integers(0, 2**32), st.integers(2, 12))
def test_each_row_has_its_own_value(name, seed, dimensions):
    rows = np.random.default_rng(seed).uniform(-1, 1, (9, dimensions))
    objective = make_objective(name, dimensions, 1)
    alone = [objective(row[np.newaxis])[0] for row in rows]
    before = rows.copy()
    assert objective(rows) == pytest.approx(alone, rel=1e-12)
    assert np.array_equal(rows, before)
    assert objective(rows[:0]).shape == (0,)


def test_the_argmin_of_the_variants_moves_with_c():
    grid = np.linspace(-1, 1, 2001)
    for name in FUNCTIONS:
        objective = make_objective(name)
        best = {
            grid[objective(np.column_stack([grid, np.full_like(grid, c)])).argmin()]
            for c in (-0.9, -0.3, 0.3, 0.9)
        }
        assert len(best) == (1 if name in ("ackley", "sphere") else 4), name


def test_a_point_that_is_no_point_is_named_in_the_functions_own_units():
    objective = make_objective("sphere")
    with pytest.raises(UserError, match=r"sphere: .* found x = \(nan\), c = \(2.56\); whatever"):
        objective(np.array([[0, 0], [np.nan, 0.5]]))
    with pytest.raises(ValueError, match=r"points \[N, 2\], found \(4, 3\)"):
        objective(np.zeros((4, 3)))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("acley",), "expected one of ackley, .*, or module:callable .* found 'acley'"),
        (("ackley", 2, 2), "fewer than its 2 dimensions, found 2"),
        (("ackley", 2, -1), "0 or more free parameters.* found -1"),
        (("rosenbrock", 1, 0), "2 dimensions or more, found 1"),
        (("shifted_sphere", 2, 0), "1 free parameter or more, found 0; .* or take sphere"),
        (("sphere", 2, 1, (-1, 1)), r"no bounds, because it has its own, found \(-1, 1\)"),
    ],
)
def test_what_cannot_be_made(arguments, message):
    with pytest.raises(UserError, match=message):
        make_objective(*arguments)
