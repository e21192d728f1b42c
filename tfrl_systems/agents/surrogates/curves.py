"""Smooth curves from contexts to actions, linear in their weights."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from tfrl_systems.agents.surrogates.matern import distances, matern

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
