"""Smooth curves from contexts to actions, linear in their weights, and their covariance.

That is Matérn-5/2 (C. E. Rasmussen, C. K. I. Williams, 2006, eq. 4.17).
"""

from __future__ import annotations

import math

import numpy as np
from scipy import linalg

# How far contexts are apart where a curve has turned, and the share of its variance that turns so.
_PARTS = ((2.0, 0.99), (0.5, 0.01))
# How many anchors each context needs.
_ANCHORS_PER_COLUMN, _MAX_ANCHORS = 16, 48


class Curves:
    """Draws of a Gaussian process over contexts: x(c) = Φ(c) W, W standard normal.

    Args:
      anchors: contexts [F, k] between which curves are smooth.
    """

    def __init__(self, anchors: np.ndarray) -> None:
        self.anchors = anchors
        covariance = _covariance(anchors, anchors) + 1e-6 * np.eye(len(anchors))
        self._factor = linalg.cholesky(covariance, lower=True)

    def __call__(self, contexts: np.ndarray) -> np.ndarray:
        """Return Φ at contexts [M, k], float64 [M, F]."""
        covariance = _covariance(self.anchors, contexts)
        features: np.ndarray = linalg.solve_triangular(self._factor, covariance, lower=True).T
        return features


def num_anchors(num_contexts: int) -> int:
    """Return how many anchors curves over so many contexts have."""
    return min(_ANCHORS_PER_COLUMN * num_contexts, _MAX_ANCHORS)


def _covariance(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the covariance [M, N] of contexts [M, k] and [N, k]."""
    covariance = np.zeros((len(left), len(right)))
    for length, variance in _PARTS:
        covariance += variance * matern(distances(left / length, right / length))
    return covariance


def distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return √5 times the distances [M, N] of rows [M, n] and [N, n], in lengths."""
    squares = np.sum(left**2, axis=1)[:, np.newaxis] + np.sum(right**2, axis=1) - 2 * left @ right.T
    return math.sqrt(5.0) * np.sqrt(np.maximum(squares, 0))


def matern(distance: np.ndarray) -> np.ndarray:
    """Return the covariance at distances that were multiplied by √5; 1 at 0."""
    covariance: np.ndarray = (1 + distance + distance**2 / 3) * np.exp(-distance)
    return covariance
