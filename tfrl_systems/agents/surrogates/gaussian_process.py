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
import functools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy import linalg, optimize
from scipy.linalg import lapack

from tfrl_systems.agents.surrogates.curves import Curves, distances, matern

# Added to the diagonal, in variances: rounding makes kernels of close points singular.
_JITTER = 1e-8
# Standard deviations of the priors of logarithms.
_SCALE_SPREAD, _LENGTH_SPREAD, _NOISE_SPREAD = 1.5, 1.0, 2.0
_USUAL_NOISE = 0.05
# Standard deviation of the weights of the curve from which actions count.
CURVE_SPREAD = 0.5


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
    """The sum of terms, of points whose actions count from a curve x(c) = Φ(c) W.

    It is a function of θ: of each term the logarithms of scale and lengths, that of the noise, and
    W, standard normal but for a factor. Where f(x; c) is much the same function of x - x(c) for all
    c, the fit finds that curve, and a value at one context tells of all others.

    Attributes:
      terms: the terms.
      curves: Φ.
      num_actions: m; actions are the first columns.
      noise: the noise in units of the values' spread; None to estimate it.
    """

    terms: tuple[Term, ...]
    curves: Curves
    num_actions: int
    noise: float | None

    @functools.cached_property
    def usual(self) -> np.ndarray:
        """Return the θ that priors expect, float64 [P]."""
        parts = [(term.scale, *term.lengths) for term in self.terms]
        noise = _USUAL_NOISE if self.noise is None else max(self.noise, 1e-6)
        return np.append(np.log(np.concatenate([*parts, [noise]])), np.zeros(self._num_weights))

    @functools.cached_property
    def spread(self) -> np.ndarray:
        """Return the standard deviations of the priors of θ, float64 [P]."""
        parts = [[_SCALE_SPREAD, *[_LENGTH_SPREAD] * len(term.columns)] for term in self.terms]
        # A noise that is known does not move.
        noise = _NOISE_SPREAD if self.noise is None else 1e-6
        return np.concatenate([*parts, [noise], np.full(self._num_weights, CURVE_SPREAD)])

    @property
    def starts(self) -> list[np.ndarray]:
        """Return the θ that fits begin at: the usual one, and one with finer ripples."""
        return [self.usual, self.finer(0.3)]

    def finer(self, share: float) -> np.ndarray:
        """Return the usual θ, but ripples over the actions are shorter by a factor."""
        theta = self.usual.copy()
        start = 1 + len(self.terms[0].columns)
        theta[start + 1 : start + 1 + self.num_actions] += math.log(share)
        return theta

    @property
    def _num_weights(self) -> int:
        return len(self.curves.anchors) * self.num_actions

    @property
    def noise_place(self) -> int:
        """Return the place in θ of the noise."""
        return sum(1 + len(term.columns) for term in self.terms)

    def features(self, points: np.ndarray) -> np.ndarray:
        """Return Φ at points [N, n], float64 [N, F]."""
        return self.curves(points[:, self.num_actions :])

    def relative(
        self, theta: np.ndarray, points: np.ndarray, features: np.ndarray | None = None
    ) -> np.ndarray:
        """Return points [N, n] with actions that count from the curve."""
        features = self.features(points) if features is None else features
        weights = theta[self.noise_place + 1 :].reshape(features.shape[1], self.num_actions)
        moved = points.copy()
        moved[:, : self.num_actions] -= features @ weights
        return moved

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
        """Return the covariance [M, N] of relative points [M, n] and [N, n], without noise."""
        covariance = np.zeros((len(left), len(right)))
        for columns, variance, lengths in self.parts(theta):
            distance = distances(left[:, columns] / lengths, right[:, columns] / lengths)
            covariance += variance * matern(distance)
        return covariance

    def most_telling(self, theta: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Return the places of points [N, n], each the least certain, given those before it.

        So far points come before the many that lie close together where values are low.
        """
        points = self.relative(theta, points)
        covariance = self(theta, points, points)
        covariance[np.diag_indices(len(points))] += math.exp(2 * theta[self.noise_place])
        _, order, *_ = lapack.dpstrf(covariance, lower=1)
        return order - 1

    def loss(
        self, theta: np.ndarray, points: np.ndarray, values: np.ndarray, features: np.ndarray
    ) -> float:
        """Return the negative logarithm of evidence times priors; infinite if it has none."""
        points = self.relative(theta, points, features)
        return self._solved(theta, self(theta, points, points), values)[0]

    def _solved(
        self, theta: np.ndarray, covariance: np.ndarray, values: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the loss, the Cholesky factor of a covariance with noise, and K⁻¹ y."""
        covariance[np.diag_indices(len(values))] += math.exp(2 * theta[self.noise_place]) + _JITTER
        try:
            factor = linalg.cholesky(covariance, lower=True)
        except linalg.LinAlgError:
            return math.inf, covariance, values
        weights = linalg.cho_solve((factor, True), values)
        surprise = (theta - self.usual) / self.spread
        loss = values @ weights / 2 + np.log(np.diag(factor)).sum() + surprise @ surprise / 2
        return float(loss), factor, weights

    def loss_and_gradient(
        self, theta: np.ndarray, points: np.ndarray, values: np.ndarray, features: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Return the negative logarithm of evidence times priors, and its gradient [P]."""
        points = self.relative(theta, points, features)
        covariance = np.zeros((len(points), len(points)))
        terms = []
        for columns, variance, lengths in self.parts(theta):
            scaled = points[:, columns] / lengths
            distance = distances(scaled, scaled)
            decay = variance * np.exp(-distance)
            term = (1 + distance + distance**2 / 3) * decay
            covariance += term
            terms.append((columns, lengths, scaled, term, (5 / 3) * (1 + distance) * decay))
        loss, factor, weights = self._solved(theta, covariance, values)
        if math.isinf(loss):
            return 1e10, np.zeros_like(theta)
        inverse = np.tril(lapack.dpotri(factor, lower=1)[0])
        # (α αᵀ - K⁻¹), eq. 5.9, of whose lower half dpotri returns the inverse.
        pull = np.outer(weights, weights) - inverse - np.tril(inverse, -1).T
        gradient, by_point = [], np.zeros_like(points)
        for columns, lengths, scaled, term, slope in terms:
            gradient.append(-np.sum(pull * term))
            pulled = pull * slope
            by_scaled = pulled.sum(axis=1)[:, np.newaxis] * scaled - pulled @ scaled
            gradient += list(-np.sum(by_scaled * scaled, axis=0))
            by_point[:, columns] += by_scaled / lengths
        gradient.append(-math.exp(2 * theta[self.noise_place]) * np.trace(pull))
        by_weights = -features.T @ by_point[:, : self.num_actions]
        surprise = (theta - self.usual) / self.spread
        return loss, np.append(gradient, by_weights) + surprise / self.spread


class GaussianProcess:
    """A process that was conditioned on values at points.

    Args:
      kernel: the covariance.
      points: [N, n].
      values: [N], finite.
      starts: each a θ from which a fit begins, by default the kernel's; the end counts that is best
        for all points.
      fit_points: the most points, evenly spaced among all, that θ is fitted to; 0 to keep the
        first start.

    Attributes:
      theta: the logarithms as they were fitted.
    """

    def __init__(
        self,
        kernel: Kernel,
        points: np.ndarray,
        values: np.ndarray,
        starts: Sequence[np.ndarray] = (),
        fit_points: int = 400,
    ) -> None:
        self.kernel = kernel
        self._middle = float(np.mean(values))
        self.unit = float(np.std(values)) or 1.0
        scaled = (values - self._middle) / self.unit
        starts = starts or kernel.starts
        self.theta = starts[0]
        if fit_points:
            count = min(fit_points, len(points))
            rows = np.unique(np.linspace(0, len(points) - 1, count).astype(int))
            features = kernel.features(points)
            arguments = points[rows], scaled[rows], features[rows]
            ends = [
                optimize.minimize(
                    kernel.loss_and_gradient,
                    start,
                    args=arguments,
                    jac=True,
                    method="L-BFGS-B",
                    bounds=kernel.bounds,
                    options={"maxiter": 60},
                ).x
                for start in starts
            ]
            # Few points may be explained by ripples that are too fine for all of them.
            self.theta = min(ends, key=lambda end: kernel.loss(end, points, scaled, features))
        points = self._points = kernel.relative(self.theta, points)
        covariance = kernel(self.theta, points, points)
        self._factor = _factor(covariance, self._noise**2)
        self._weights = linalg.cho_solve((self._factor, True), scaled)

    @property
    def noise(self) -> float:
        """Return the standard deviation of the noise, in units of the values."""
        return self.unit * self._noise

    @property
    def _noise(self) -> float:
        return math.exp(self.theta[self.kernel.noise_place])

    def mean(self, points: np.ndarray) -> np.ndarray:
        """Return the expected values [M] at points [M, n]."""
        points = self.kernel.relative(self.theta, points)
        covariance = self.kernel(self.theta, points, self._points)
        return self._middle + self.unit * covariance @ self._weights

    def mean_and_gradient(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the expected values [M] at points [M, n], and their gradients [M, n].

        The curve counts as fixed, so gradients by contexts lack what it adds.
        """
        points = self.kernel.relative(self.theta, points)
        mean, gradient = np.zeros(len(points)), np.zeros(points.shape)
        for columns, variance, lengths in self.kernel.parts(self.theta):
            here, there = points[:, columns] / lengths, self._points[:, columns] / lengths
            distance = distances(here, there)
            decay = variance * np.exp(-distance) * self._weights
            mean += np.sum((1 + distance + distance**2 / 3) * decay, axis=1)
            slope = (-5 / 3) * (1 + distance) * decay
            gradient[:, columns] += (
                here * slope.sum(axis=1)[:, np.newaxis] - slope @ there
            ) / lengths
        return self._middle + self.unit * mean, self.unit * gradient

    def std(self, points: np.ndarray) -> np.ndarray:
        """Return the standard deviations [M] of the values without noise at points [M, n]."""
        points = self.kernel.relative(self.theta, points)
        covariance = self.kernel(self.theta, points, self._points)
        solved = linalg.solve_triangular(self._factor, covariance.T, lower=True)
        prior = sum(variance for _, variance, _ in self.kernel.parts(self.theta))
        return self.unit * np.sqrt(np.maximum(prior - np.sum(solved**2, axis=0), 0))

    def sample(self, points: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return values [M] that may be the function's at points [M, n], without noise."""
        points = self.kernel.relative(self.theta, points)
        covariance = self.kernel(self.theta, points, self._points)
        solved = linalg.solve_triangular(self._factor, covariance.T, lower=True)
        prior = self.kernel(self.theta, points, points)
        mean = self._middle + self.unit * covariance @ self._weights
        eigenvalues, vectors = np.linalg.eigh(self.unit**2 * (prior - solved.T @ solved))
        # Rounding leaves eigenvalues a little below 0.
        stds = np.sqrt(np.maximum(eigenvalues, 0))
        drawn: np.ndarray = mean + vectors @ (stds * generator.standard_normal(len(mean)))
        return drawn


def make_kernel(
    num_actions: int, num_contexts: int, curves: Curves, noise: float | None = None
) -> Kernel:
    """Return the covariance of a function of actions, which come first, and contexts, in the box.

    It has a wide term, a narrow one for ripples, and two of the contexts alone. What depends on the
    context alone moves no minimum over the actions, so it shall not look like noise either.

    Args:
      num_actions: m.
      num_contexts: k.
      curves: Φ.
      noise: the noise in units of the values' spread; None to estimate it.
    """
    columns = tuple(range(num_actions + num_contexts))
    wide, of_contexts = (1.0,) * num_contexts, columns[num_actions:]
    terms = [
        Term(columns, (1.0,) * num_actions + wide, 1.0),
        Term(columns, (0.2,) * num_actions + wide, 0.3),
    ]
    if of_contexts:
        terms += [Term(of_contexts, (length,) * num_contexts, 0.3) for length in (0.3, 0.03)]
    return Kernel(tuple(terms), curves, num_actions, noise)


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
