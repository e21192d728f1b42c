"""Ackley's function as an experiment, for `thesis_tables.py`: each point takes a millisecond."""

from __future__ import annotations

import time

import numpy as np

from environments.learn_to_optimize import functions

SECONDS_PER_POINT = 1e-3


def value(points: np.ndarray) -> np.ndarray:
    """The values [N] of points [N, n] of Ackley's domain, after N milliseconds."""
    time.sleep(SECONDS_PER_POINT * len(points))
    return functions.ackley(points)


value.bounds = (-32.768, 32.768)  # type: ignore[attr-defined]
