"""The path of the minimum: the best action as a smooth function of the context.

A path is a polynomial in Chebyshev's products of the contexts in [-1, 1]^k, for each action. It has
few coefficients. So values at all contexts speak for each of them, and ripples average out, which
no search at a single context could do.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
from scipy import optimize

# The highest total degree for so many contexts; with more of them it is the last.
_DEGREES = (0, 10, 7, 4, 3, 2)
# Weighs squares of coefficients by degree^4, so that a path through few points does not swing.
_RIDGE = 1e-9

MeanFn = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Points (x, c) [M, n] -> the expected values [M] and their gradients [M, n]."""


@dataclasses.dataclass(frozen=True)
class Path:
    """A polynomial from contexts in [-1, 1]^k to actions in [-1, 1]^m.

    Attributes:
      weights: coefficients, float64 [F, m].
      num_contexts: k.
    """

    weights: np.ndarray
    num_contexts: int

    @classmethod
    def through(cls, contexts: np.ndarray, actions: np.ndarray, weight: np.ndarray) -> Path:
        """Return the path nearest to actions [M, m] at contexts [M, k]; `weight` [M] of squares."""
        features = _features(contexts)
        root = np.sqrt(weight / weight.sum())[:, np.newaxis]
        ridge = np.sqrt(_RIDGE) * np.diag(_degrees(contexts.shape[1]) ** 2)
        left = np.concatenate([root * features, ridge])
        right = np.concatenate([root * actions, np.zeros((len(ridge), actions.shape[1]))])
        return cls(np.linalg.lstsq(left, right, rcond=None)[0], contexts.shape[1])

    def __call__(self, contexts: np.ndarray) -> np.ndarray:
        """Return the actions [M, m] at contexts [M, k], in the box."""
        return np.clip(_features(contexts) @ self.weights, -1, 1)

    def points(self, contexts: np.ndarray) -> np.ndarray:
        """Return the points (x, c) [M, m + k] of the path."""
        return np.concatenate([self(contexts), contexts], axis=1)

    def towards(
        self, mean_fn: MeanFn, contexts: np.ndarray, about: Path | None = None, radius: float = 2.0
    ) -> Path:
        """Return the path of the least mean of expected values over contexts [M, k].

        Args:
          mean_fn: the values that are expected; its points are relative to `about`, if given.
          contexts: the contexts.
          about: the path from whose actions `mean_fn` counts.
          radius: how far from there it is trusted.
        """
        features, num_rows = _features(contexts), len(contexts)
        centre = 0.0 if about is None else about(contexts)
        usual = float(
            np.std(mean_fn(np.concatenate([self(contexts) - centre, contexts], axis=1))[0])
        )
        unit = usual or 1.0

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            actions = features @ flat.reshape(self.weights.shape)
            inside = np.clip(actions, -1, 1)
            offset = np.clip(inside - centre, -radius, radius)
            mean, gradient = mean_fn(np.concatenate([offset, contexts], axis=1))
            outside = actions - centre - offset
            # Outside, only the way back counts.
            pull = np.where(outside == 0, gradient[:, : actions.shape[1]] / unit, 0)
            pull = pull + 20 * outside / radius**2
            total = np.mean(mean) / unit + 10 * np.mean(np.sum(outside**2, axis=1)) / radius**2
            return float(total), (features.T @ pull / num_rows).ravel()

        start = self.weights.ravel()
        options = {"maxiter": 100}
        tuned = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
        return Path(tuned.reshape(self.weights.shape), self.num_contexts)


def _exponents(num_contexts: int) -> list[tuple[int, ...]]:
    degree = _DEGREES[min(num_contexts, len(_DEGREES) - 1)]
    powers = itertools.product(range(degree + 1), repeat=num_contexts)
    return [exponents for exponents in powers if sum(exponents) <= degree]


def _degrees(num_contexts: int) -> np.ndarray:
    return np.array([sum(exponents) for exponents in _exponents(num_contexts)], np.float64)


def _features(contexts: np.ndarray) -> np.ndarray:
    """Return Chebyshev's products at contexts [M, k], float64 [M, F]."""
    listed = _exponents(contexts.shape[1])
    exponents = np.array(listed, np.int64).reshape(len(listed), contexts.shape[1])
    features = np.ones((len(contexts), len(exponents)))
    for column in range(contexts.shape[1]):
        of_column = np.polynomial.chebyshev.chebvander(contexts[:, column], exponents.max())
        features *= of_column[:, exponents[:, column]]
    return features
