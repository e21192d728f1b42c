"""The Matérn-5/2 covariance (C. E. Rasmussen, C. K. I. Williams, 2006, eq. 4.17)."""

from __future__ import annotations

import math

import numpy as np

_ROOT_5 = math.sqrt(5.0)


def distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return √5 times the distances [M, N] of rows [M, n] and [N, n], in lengths."""
    squares = np.sum(left**2, axis=1)[:, np.newaxis] + np.sum(right**2, axis=1) - 2 * left @ right.T
    return _ROOT_5 * np.sqrt(np.maximum(squares, 0))


def matern(distance: np.ndarray) -> np.ndarray:
    """Return the covariance at distances that were multiplied by √5; 1 at 0."""
    covariance: np.ndarray = (1 + distance + distance**2 / 3) * np.exp(-distance)
    return covariance
