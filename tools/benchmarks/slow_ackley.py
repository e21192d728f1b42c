"""A slow Ackley function for `thesis_tables.py`, like an experiment: 1 ms for each point."""

from __future__ import annotations

import time

import numpy as np

from environments.learn_to_optimize import functions

SECONDS_PER_POINT = 1e-3


def value(points: np.ndarray) -> np.ndarray:
    """Return the values [N] of points [N, n] in Ackley's domain, after N milliseconds."""
    time.sleep(SECONDS_PER_POINT * len(points))
    return functions.ackley(points)


value.bounds = (-32.768, 32.768)  # type: ignore[attr-defined]
