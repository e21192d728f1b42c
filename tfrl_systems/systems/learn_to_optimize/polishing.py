"""Makes a good answer better with a few more evaluations, by SciPy's COBYQA.

COBYQA (T. Ragonneau, Z. Zhang: Model-Based Derivative-Free Optimization Methods and Software, 2022)
fits a quadratic to the values that it has seen, and asks next where that is least within a radius
that it adapts. It needs no gradient and stays in the box.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from environments.learn_to_optimize.functions import RowFunction

# How far COBYQA looks at first, in a box from -1 to 1: a policy's answers are about as far off.
_RADIUS, _LAST_RADIUS = 0.03, 1e-8


def polish(function: RowFunction, x: np.ndarray, c: np.ndarray, evaluations: int) -> np.ndarray:
    """Return the best of the points that are evaluated, x first.

    Args:
      function: f, over the box [-1, 1]^n.
      x: [m], the point to begin at, in the box.
      c: [k], the free parameters.
      evaluations: the most evaluations of f, 1 or more. Values that are no finite number are worse
        than all others.

    Returns:
      float64 [m], in the box; never worse than x.
    """
    from scipy import optimize

    start = np.asarray(x, np.float64)
    best_x, best_value = start, np.inf

    def value_of(point: np.ndarray) -> float:
        nonlocal best_x, best_value
        inside = np.clip(point, -1.0, 1.0)
        value = float(function(np.concatenate([inside, c])[np.newaxis])[0])
        if np.isfinite(value) and value < best_value:
            best_x, best_value = inside.copy(), value
        return value

    # The first quadratic needs this many values.
    if evaluations <= 2 * len(start) + 1:
        _look_around(value_of, start, evaluations)
        return best_x
    optimize.minimize(
        value_of,
        start,
        method="COBYQA",
        bounds=[(-1.0, 1.0)] * len(start),
        options={
            "maxfev": evaluations,
            "initial_tr_radius": _RADIUS,
            "final_tr_radius": _LAST_RADIUS,
        },
    )
    return best_x


def _look_around(
    value_of: Callable[[np.ndarray], float], start: np.ndarray, evaluations: int
) -> None:
    """Evaluate the start, and then steps along the axes, in turn up and down."""
    value_of(start)
    for number in range(evaluations - 1):
        point = start.copy()
        point[number // 2] += _RADIUS if number % 2 == 0 else -_RADIUS
        value_of(point)
