"""Gaussian processes in float64 NumPy and SciPy.

C. E. Rasmussen, C. K. I. Williams: Gaussian Processes for Machine Learning (2006): Algorithm 2.1
for the prediction, eq. 5.9 for the gradient of the evidence. The covariance is a sum of terms, each
a Matérn-5/2 kernel with a length for each of its columns (eq. 4.17):

    k(a, b) = Σ_t s_t² (1 + d + d²/3) exp(-d),   d = √5 |(a - b) / l_t| over the columns of t.

A fit maximises the evidence times log-normal priors of all lengths, scales and the noise, so that
few values give no absurd length. TensorFlow Probability has the same process. Its traced gradient
takes several times as long as the one by LAPACK here, and the fit is most of what this agent does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from scipy import linalg, optimize
from scipy.linalg import lapack

_ROOT_5 = math.sqrt(5.0)
# Added to the diagonal, in variances: rounding makes kernels of close points singular.
_JITTER = 1e-8
# Standard deviations of the priors of logarithms.
_SCALE_SPREAD, _LENGTH_SPREAD, _NOISE_SPREAD = 1.5, 1.0, 2.0
_USUAL_NOISE = 0.05


@dataclasses.dataclass(frozen=True)
class Term:
    """A part of the covariance.

    Attributes:
      columns: the columns of points that it compares.
      lengths: the usual length in each of these columns.
      scale: the usual standard deviation, in units of that of the values.
    """

    columns: tuple[int, ...]
    lengths: tuple[float, ...]
    scale: float


@dataclasses.dataclass(frozen=True)
class Kernel:
    """The sum of terms, as a function of logarithms θ: of each term scale and lengths; noise last.

    Attributes:
      terms: the terms.
      noise: the noise in units of the values' spread; None to estimate it.
    """

    terms: tuple[Term, ...]
    noise: float | None = None

    @property
    def usual(self) -> np.ndarray:
        """Return the θ that priors expect, float64 [P]."""
        parts = [(term.scale, *term.lengths) for term in self.terms]
        noise = _USUAL_NOISE if self.noise is None else max(self.noise, 1e-6)
        return np.log(np.concatenate([*parts, [noise]]))

    @property
    def spread(self) -> np.ndarray:
        """Return the standard deviations of the priors of θ, float64 [P]."""
        parts = [[_SCALE_SPREAD, *[_LENGTH_SPREAD] * len(term.columns)] for term in self.terms]
        # A noise that is known does not move.
        return np.concatenate([*parts, [_NOISE_SPREAD if self.noise is None else 1e-6]])

    @property
    def bounds(self) -> np.ndarray:
        """Return the least and the greatest θ that a fit may try, float64 [P, 2]."""
        return np.stack([self.usual - 6 * self.spread, self.usual + 6 * self.spread], axis=1)

    def parts(self, theta: np.ndarray) -> Iterator[tuple[list[int], float, np.ndarray]]:
        """Yield the columns, the variance and the lengths of each term."""
        start = 0
        for term in self.terms:
            end = start + 1 + len(term.columns)
            yield list(term.columns), math.exp(2 * theta[start]), np.exp(theta[start + 1 : end])
            start = end

    def __call__(self, theta: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the covariance [M, N] of points [M, n] and [N, n], without noise."""
        covariance = np.zeros((len(left), len(right)))
        for columns, variance, lengths in self.parts(theta):
            distance = _distances(left[:, columns] / lengths, right[:, columns] / lengths)
            covariance += variance * (1 + distance + distance**2 / 3) * np.exp(-distance)
        return covariance

    def loss(
        self, theta: np.ndarray, points: np.ndarray, values: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Return the negative logarithm of evidence times priors, and its gradient [P]."""
        covariance = np.zeros((len(points), len(points)))
        terms = []
        for columns, variance, lengths in self.parts(theta):
            scaled = points[:, columns] / lengths
            distance = _distances(scaled, scaled)
            decay = variance * np.exp(-distance)
            term = (1 + distance + distance**2 / 3) * decay
            covariance += term
            terms.append((scaled, term, (5 / 3) * (1 + distance) * decay))
        noise_variance = math.exp(2 * theta[-1])
        covariance[np.diag_indices(len(points))] += noise_variance + _JITTER
        try:
            factor = linalg.cholesky(covariance, lower=True)
        except linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        weights = linalg.cho_solve((factor, True), values)
        surprise = (theta - self.usual) / self.spread
        loss = values @ weights / 2 + np.log(np.diag(factor)).sum() + surprise @ surprise / 2
        inverse = np.tril(lapack.dpotri(factor, lower=1)[0])
        # (α αᵀ - K⁻¹), eq. 5.9, of whose lower half dpotri returns the inverse.
        pull = np.outer(weights, weights) - inverse - np.tril(inverse, -1).T
        gradient = []
        for scaled, term, slope in terms:
            gradient.append(-np.sum(pull * term))
            pulled = pull * slope
            sums = pulled.sum(axis=1)
            gradient += [-(sums * x) @ x + x @ (pulled @ x) for x in scaled.T]
        gradient.append(-noise_variance * np.trace(pull))
        return float(loss), np.array(gradient) + surprise / self.spread


class GaussianProcess:
    """A process that was conditioned on values at points.

    Args:
      kernel: the covariance.
      points: [N, n].
      values: [N], finite.
      theta: logarithms of scales, lengths and noise; None for the usual ones.
      fit_points: the most points, evenly spaced among all, that θ is fitted to; 0 to keep θ.

    Attributes:
      theta: the logarithms as they were fitted.
    """

    def __init__(
        self,
        kernel: Kernel,
        points: np.ndarray,
        values: np.ndarray,
        theta: np.ndarray | None = None,
        fit_points: int = 400,
    ) -> None:
        self._kernel, self._points = kernel, points
        self._middle = float(np.mean(values))
        self.unit = float(np.std(values)) or 1.0
        scaled = (values - self._middle) / self.unit
        self.theta = kernel.usual if theta is None else theta
        if fit_points:
            rows = np.unique(
                np.linspace(0, len(points) - 1, min(fit_points, len(points))).astype(int)
            )
            self.theta = optimize.minimize(
                kernel.loss,
                self.theta,
                args=(points[rows], scaled[rows]),
                jac=True,
                method="L-BFGS-B",
                bounds=kernel.bounds,
                options={"maxiter": 40},
            ).x
        covariance = kernel(self.theta, points, points)
        self._factor = _factor(covariance, math.exp(2 * self.theta[-1]))
        self._weights = linalg.cho_solve((self._factor, True), scaled)

    @property
    def noise(self) -> float:
        """Return the standard deviation of the noise, in units of the values."""
        return self.unit * math.exp(self.theta[-1])

    def mean(self, points: np.ndarray) -> np.ndarray:
        """Return the expected values [M] at points [M, n]."""
        covariance = self._kernel(self.theta, points, self._points)
        return self._middle + self.unit * covariance @ self._weights

    def mean_and_gradient(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the expected values [M] at points [M, n], and their gradients [M, n]."""
        mean, gradient = np.zeros(len(points)), np.zeros(points.shape)
        for columns, variance, lengths in self._kernel.parts(self.theta):
            here, there = points[:, columns] / lengths, self._points[:, columns] / lengths
            distance = _distances(here, there)
            decay = variance * np.exp(-distance) * self._weights
            mean += np.sum((1 + distance + distance**2 / 3) * decay, axis=1)
            slope = (-5 / 3) * (1 + distance) * decay
            gradient[:, columns] += (
                here * slope.sum(axis=1)[:, np.newaxis] - slope @ there
            ) / lengths
        return self._middle + self.unit * mean, self.unit * gradient

    def joint(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the expected values [M] without noise, and their covariance [M, M]."""
        covariance = self._kernel(self.theta, points, self._points)
        solved = linalg.solve_triangular(self._factor, covariance.T, lower=True)
        prior = self._kernel(self.theta, points, points)
        mean = self._middle + self.unit * covariance @ self._weights
        return mean, self.unit**2 * (prior - solved.T @ solved)

    def std(self, points: np.ndarray) -> np.ndarray:
        """Return the standard deviations [M] of the values without noise at points [M, n]."""
        covariance = self._kernel(self.theta, points, self._points)
        solved = linalg.solve_triangular(self._factor, covariance.T, lower=True)
        prior = sum(variance for _, variance, _ in self._kernel.parts(self.theta))
        return self.unit * np.sqrt(np.maximum(prior - np.sum(solved**2, axis=0), 0))

    def sample(self, points: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return values [M] that may be the function's at points [M, n], without noise."""
        mean, covariance = self.joint(points)
        eigenvalues, vectors = np.linalg.eigh(covariance)
        # Rounding leaves eigenvalues a little below 0.
        stds = np.sqrt(np.maximum(eigenvalues, 0))
        drawn: np.ndarray = mean + vectors @ (stds * generator.standard_normal(len(mean)))
        return drawn


def make_kernel(num_columns: int, num_actions: int, noise: float | None = None) -> Kernel:
    """Return the covariance of a function of actions, which come first, and contexts, in the box.

    It has a wide term, a narrow one for ripples, and one of the contexts alone. What depends on the
    context alone moves no minimum over the actions, so it shall not look like noise either.

    Args:
      num_columns: m + k.
      num_actions: m.
      noise: the noise in units of the values' spread; None to estimate it.
    """
    columns = tuple(range(num_columns))
    terms = [Term(columns, (1.0,) * num_columns, 1.0), Term(columns, (0.2,) * num_columns, 0.3)]
    if contexts := columns[num_actions:]:
        terms.append(Term(contexts, (0.3,) * len(contexts), 0.3))
    return Kernel(tuple(terms), noise)


def _factor(covariance: np.ndarray, noise_variance: float) -> np.ndarray:
    """Return the Cholesky factor of a covariance with noise, and as much jitter as needed."""
    jitter = _JITTER
    while True:
        try:
            return linalg.cholesky(
                covariance + (noise_variance + jitter) * np.eye(len(covariance)), lower=True
            )
        except linalg.LinAlgError:
            jitter *= 10


def _distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return √5 times the distances [M, N] of rows."""
    squares = np.sum(left**2, axis=1)[:, np.newaxis] + np.sum(right**2, axis=1) - 2 * left @ right.T
    return _ROOT_5 * np.sqrt(np.maximum(squares, 0))
