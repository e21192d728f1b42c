"""Projected BFGS from many starts at once, in the box [-1, 1]^m, with gradients by differences.

All starts move together, so the function is called few times with many rows. That is far faster
than one minimisation after another, as scipy does it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Maps (row numbers [Q] among the R rows, points [Q, P, m] in the box) to values [Q, P].
PointsFunction = Callable[[np.ndarray, np.ndarray], np.ndarray]

_DIFFERENCE = 1e-6
# The fractions of a step that are tried together.
_FRACTIONS = np.array([1, 0.5, 0.2, 0.05, 1e-2, 1e-3, 1e-5])
# A step counts as failed if it gains less than this times 1 + |v|, where v is the value.
_LEAST_GAIN = 1e-13
# The length of the first step and of the step after a failure, both along the gradient.
_FIRST_STEP = 0.1


def descend(function: PointsFunction, starts: np.ndarray, num_rounds: int = 200) -> np.ndarray:
    """Descend from every start to a local minimum, [R, m]; the value never rises.

    Args:
      function: maps row numbers and points to values; see `PointsFunction`.
      starts: float64 [R, m], in the box.
      num_rounds: the most steps.
    """
    result = starts.copy()
    rows, x = np.arange(len(starts)), starts.copy()
    values, gradient = _gradient(function, rows, x)
    inverse = np.zeros((*x.shape, x.shape[1]))
    is_fresh = np.ones(len(rows), bool)
    for _ in range(num_rounds):
        # A point at the edge whose step would leave the box moves along the edge.
        is_held = ((x <= -1) & (gradient > 0)) | ((x >= 1) & (gradient < 0))
        downhill = np.where(is_held, 0, -gradient)
        inverse[is_fresh] = _first_inverse(downhill[is_fresh])
        direction = np.where(is_held, 0, np.einsum("rij,rj->ri", inverse, downhill))
        trials = np.clip(x[:, None] + _FRACTIONS[:, None] * direction[:, None], -1, 1)
        trial_values = function(rows, trials)
        best = trial_values.argmin(axis=1)
        gain = values - np.take_along_axis(trial_values, best[:, None], axis=1)[:, 0]
        is_better = gain > _LEAST_GAIN * (1 + np.abs(values))
        moved = np.where(is_better[:, None], trials[np.arange(len(x)), best], x)
        result[rows] = moved
        # A row is done when a step along the gradient fails. After any other failed step it starts
        # over along the gradient.
        goes_on = is_better | ~is_fresh
        if not goes_on.any():
            break
        rows, moved, is_better = rows[goes_on], moved[goes_on], is_better[goes_on]
        x, gradient, inverse = x[goes_on], gradient[goes_on], inverse[goes_on]
        values, moved_gradient = _gradient(function, rows, moved)
        is_fresh = ~_update(inverse, moved - x, moved_gradient - gradient) | ~is_better
        x, gradient = moved, moved_gradient
    return result


def _gradient(
    function: PointsFunction, rows: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return values [R] and gradients [R, m] at x [R, m]."""
    num_tuned = x.shape[1]
    steps = np.vstack([np.zeros(num_tuned), np.eye(num_tuned), -np.eye(num_tuned)]) * _DIFFERENCE
    # The function may not exist outside the box, so differences at its edge are one-sided.
    points = np.clip(x[:, None] + steps, -1, 1)
    values = function(rows, points)
    ahead, behind = slice(1, 1 + num_tuned), slice(1 + num_tuned, None)
    widths = np.diagonal(points[:, ahead] - points[:, behind], axis1=1, axis2=2)
    return values[:, 0], (values[:, ahead] - values[:, behind]) / widths


def _first_inverse(downhill: np.ndarray) -> np.ndarray:
    """Return a first inverse Hessian [R, m, m] that makes all steps `_FIRST_STEP` long."""
    length = np.linalg.norm(downhill, axis=1)
    scale = _FIRST_STEP / np.where(length > 0, length, 1)
    return scale[:, None, None] * np.eye(downhill.shape[1])


def _update(inverse: np.ndarray, step: np.ndarray, change: np.ndarray) -> np.ndarray:
    """Update the inverse Hessian H [R, m, m] in place by BFGS; return where s'y > 0 allows it.

    With the change s of x and y of the gradient: H <- (1 - r s y') H (1 - r y s') + r s s', where
    r = 1 / s'y.
    """
    product = np.einsum("ri,ri->r", step, change)
    size = np.linalg.norm(step, axis=1) * np.linalg.norm(change, axis=1)
    usable = product > 1e-10 * size
    s, y = step[usable], change[usable]
    r = 1 / product[usable, None, None]
    left = np.eye(step.shape[1]) - r * s[:, :, None] * y[:, None]
    inverse[usable] = left @ inverse[usable] @ left.transpose(0, 2, 1) + (
        r * s[:, :, None] * s[:, None]
    )
    return usable
