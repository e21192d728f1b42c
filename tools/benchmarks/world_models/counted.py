"""Shifted Ackley, which counts its evaluations: to learn it from few of them."""

from __future__ import annotations

import numpy as np

from environments.learn_to_optimize import functions

_OBJECTIVE = functions.make_objective("shifted_ackley", 2, 1)
num_evaluations = 0


def value(points: np.ndarray) -> np.ndarray:
    """Return the values [N] of points [N, 2] of the box, and count them."""
    global num_evaluations
    num_evaluations += len(points)
    return _OBJECTIVE(points)


value.bounds = (-1.0, 1.0)  # type: ignore[attr-defined]
