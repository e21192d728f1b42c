"""A region around a curve of actions over the contexts, and the models of a function in it."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy import optimize
from scipy.stats import qmc

from tfrl_systems.agents.surrogates.curves import Curves
from tfrl_systems.agents.surrogates.gaussian_process import GaussianProcess, make_kernel

# The most points that a model holds, because its cost grows with their cube; and that its lengths
# are fitted to.
_MAX_POINTS, _FIT_POINTS = 1200, 500
# Models see points as far as so many radii.
_BESIDE = 1.5
# One of so many proposals is where the expected value is least.
_BEST_SHARE = 4
# Actions that are looked at in a context, and how many of them are descended from.
_PER_ACTION, _NUM_NEAREST, _NUM_STARTS, _DESCENT_ROUNDS = 128, 64, 3, 40
# Widths of the steps around the best action at which a drawn function is looked at.
_STEPS = (0.3, 0.1, 0.03, 0.01)


@dataclasses.dataclass
class Region:
    """Where |x - x(c)| is at most a radius in each action, and models of the values there.

    Models see points relative to the region: actions count from the curve, in units of the radius.

    Attributes:
      curves: Φ.
      middle: W; the curve is x(c) = Φ(c) W, float64 [F, m].
      radius: the radius.
      is_whole: whether it is the box.
      theta: what the last fit of `model` came to; None before.
      model: the model of values; None before the first fit.
      failures: the model of 1 where a trial failed and 0 elsewhere; None if none failed.
    """

    curves: Curves
    middle: np.ndarray
    radius: float = 1.0
    is_whole: bool = True
    theta: np.ndarray | None = None
    model: GaussianProcess | None = dataclasses.field(default=None, init=False)
    failures: GaussianProcess | None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        """Begin without trials."""
        self.trials = np.zeros((0, self.curves.anchors.shape[1] + self.num_actions))
        self._price = np.nan

    @property
    def num_actions(self) -> int:
        """Return m."""
        return self.middle.shape[1]

    def fit(self, points: np.ndarray, values: np.ndarray, noise: float | None, refit: bool) -> None:
        """Fit the models to trials: points [N, n] of the box, values [N], NaN where one failed."""
        self.trials = self.relative(points)
        near = self.is_near(self.trials)
        self.trials, values = self.trials[near], values[near]
        has_value = np.isfinite(values)
        self.failures = None
        if not has_value.all():
            self.failures = self._fitted(1.0 - has_value, None, None, refit=True)
        self.model = self._fitted(values, self.theta, noise, refit)
        self.theta = self.model.theta
        self._price = float(np.nanmax(values)) + self.model.unit

    def _fitted(
        self, values: np.ndarray, theta: np.ndarray | None, noise: float | None, refit: bool
    ) -> GaussianProcess:
        """Return a model of those values [N] that are there; its θ was `theta`."""
        rows = np.flatnonzero(np.isfinite(values))
        places = np.linspace(0, len(rows) - 1, min(_MAX_POINTS, len(rows)))
        rows = rows[places.astype(int)]
        if noise is not None:
            noise /= float(np.std(values[rows])) or 1.0
        num_contexts = self.trials.shape[1] - self.num_actions
        kernel = make_kernel(self.num_actions, num_contexts, noise, self.curves)
        starts = [] if theta is None else [theta]
        # In the box ripples are either seen early or too fine for it.
        if not starts or (refit and not (self.is_whole and len(rows) > _FIT_POINTS)):
            starts += kernel.starts
        num_fitted = _FIT_POINTS if refit else 0
        return GaussianProcess(kernel, self.trials[rows], values[rows], starts, num_fitted)

    def is_near(self, relative: np.ndarray) -> np.ndarray:
        """Return which relative points [N, n] are in the region or beside it."""
        away = np.abs(relative[:, : self.num_actions]).max(axis=1, initial=0)
        return np.full(len(relative), True) if self.is_whole else away <= _BESIDE

    def relative(self, points: np.ndarray) -> np.ndarray:
        """Return points [N, n] of the box relative to the region."""
        relative, contexts = points.copy(), points[:, self.num_actions :]
        centre = self.curves(contexts) @ self.middle
        relative[:, : self.num_actions] = (points[:, : self.num_actions] - centre) / self.radius
        return relative

    def absolute(self, relative: np.ndarray) -> np.ndarray:
        """Return the points [N, n] of the box that `relative` returns these for."""
        points, contexts = relative.copy(), relative[:, self.num_actions :]
        centre = self.curves(contexts) @ self.middle
        actions = centre + self.radius * relative[:, : self.num_actions]
        points[:, : self.num_actions] = np.clip(actions, -1, 1)
        return points

    def best_curve(self, contexts: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return the weights [F, m] of the curve of the least expected values over contexts [M, k].

        The first guess is the model's own curve, moved as a whole to where it is best.
        """
        assert self.model is not None
        kernel, unit = self.model.kernel, self.model.unit
        shape, features = self.middle.shape, self.curves(contexts)
        own = self.model.theta[kernel.noise_place + 1 :].reshape(shape)
        ones = self.curves.through(contexts, np.ones((len(contexts), 1)))
        even = evenly(self.num_actions, _PER_ACTION * self.num_actions, generator)

        def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
            free = features @ weights.reshape(shape)
            actions = np.clip(free, -1, 1)
            means, gradient = self._expected(np.concatenate([actions, contexts], axis=1))
            slope = gradient[:, : self.num_actions] / unit
            outside = free - actions
            slope = np.where(outside == 0, slope, 0) + 20 * outside
            total = np.mean(means) / unit + 10 * np.sum(outside**2) / len(contexts)
            return float(total), (features.T @ slope / len(contexts)).ravel()

        starts = [np.zeros(shape), *(own + ones * offset for offset in even)]
        losses = [loss(start.ravel())[0] for start in starts]
        best = [starts[place].ravel() for place in np.argsort(losses, kind="stable")[:3]]
        ends = [
            optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 50})
            for start in best
        ]
        best_end = min(ends, key=lambda end: float(end.fun))
        return self.middle + self.radius * best_end.x.reshape(shape)

    def zoomed(self, middle: np.ndarray, radius: float) -> Region:
        """Return a region around another curve, whose fit begins where this one's ended."""
        assert self.model is not None
        zoom = self.model.kernel.zoomed(self.model.theta, self.middle, self.radius, middle, radius)
        return Region(self.curves, middle, radius, False, zoom)

    def proposals(self, contexts: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return a point of the box for each context [M, k] to ask at.

        A quarter is where the expected value is least, most others are where a drawn function is.
        In a region that is not the box, so many fill it evenly, because ripples are to be seen.
        """
        count = len(contexts)
        num_best = count // _BEST_SHARE
        num_even = 0 if self.is_whole else 2 * num_best
        best, even, rest = np.split(contexts, [num_best, num_best + num_even])
        spread = evenly(self.num_actions, num_even, generator)
        parts = [self.least(best, generator), np.concatenate([spread, even], axis=1)]
        parts += [self.drawn(context, generator)[np.newaxis] for context in rest]
        return self.absolute(np.concatenate(parts))

    def drawn(self, context: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return the least relative point, for a context, of a function drawn from the model."""
        assert self.model is not None
        even = generator.uniform(-1, 1, (_PER_ACTION * self.num_actions // 2, self.num_actions))
        best = self._starts(even, context)[0]
        around = [
            best + step * generator.standard_normal((25, self.num_actions)) for step in _STEPS
        ]
        points = _joined(np.clip(np.concatenate([even, *around]), -1, 1), context)
        values = self._priced(self.model.sample(points, generator), points)
        return points[values.argmin()]

    def least(self, contexts: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return the relative points [M, m + k] of the least expected value for contexts [M, k]."""
        if not len(contexts):
            return np.zeros((0, self.trials.shape[1]))
        even = evenly(self.num_actions, _PER_ACTION * self.num_actions, generator)
        starts = np.concatenate([self._starts(even, context) for context in contexts])
        repeated = np.repeat(contexts, _NUM_STARTS, axis=0)
        ends, means = self._descended(starts, repeated)
        best = means.reshape(-1, _NUM_STARTS).argmin(axis=1)
        rows = np.arange(len(contexts))
        minima = ends.reshape(-1, _NUM_STARTS, self.num_actions)[rows, best]
        return np.concatenate([minima, contexts], axis=1)

    def _starts(self, even: np.ndarray, context: np.ndarray) -> np.ndarray:
        """Return actions to descend from: the best of evenly spaced ones and of trials near by."""
        distance = np.sum((self.trials[:, self.num_actions :] - context) ** 2, axis=1)
        nearest = np.argsort(distance, kind="stable")[:_NUM_NEAREST]
        tried = self.trials[nearest, : self.num_actions]
        actions = np.concatenate([even, np.clip(tried, -1, 1)])
        points = _joined(actions, context)
        assert self.model is not None
        means = self._priced(self.model.mean(points), points)
        return actions[np.argsort(means, kind="stable")[:_NUM_STARTS]]

    def _descended(
        self, actions: np.ndarray, contexts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Follow the gradient from actions [M, m], each with a step of its own."""
        best, step = actions.copy(), np.full((len(actions), 1), 0.05)
        means, gradient = self._expected(np.concatenate([best, contexts], axis=1))
        for _ in range(_DESCENT_ROUNDS):
            slope = gradient[:, : self.num_actions]
            norm = np.maximum(np.linalg.norm(slope, axis=1, keepdims=True), 1e-300)
            tried = np.clip(best - step * slope / norm, -1, 1)
            tried_means, tried_gradient = self._expected(np.concatenate([tried, contexts], axis=1))
            is_better = tried_means < means
            best[is_better], means[is_better] = tried[is_better], tried_means[is_better]
            gradient[is_better] = tried_gradient[is_better]
            step = np.where(is_better[:, np.newaxis], 1.5 * step, 0.4 * step)
        return best, means

    def _expected(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the expected values [N] at points, failure priced, and the gradients [N, n]."""
        assert self.model is not None
        means, gradient = self.model.mean_and_gradient(points)
        if self.failures is None:
            return means, gradient
        chance, chance_gradient = self.failures.mean_and_gradient(points)
        chance_gradient *= ((chance > 0) & (chance < 1))[:, np.newaxis]
        chance = np.clip(chance, 0, 1)
        loss = (self._price - means)[:, np.newaxis]
        gradient = (1 - chance)[:, np.newaxis] * gradient + loss * chance_gradient
        return means + chance * loss[:, 0], gradient

    def _priced(self, values: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Return values [N] at points, with the price of failure in place of as much of them."""
        if self.failures is None:
            return values
        chance = np.clip(self.failures.mean(points), 0, 1)
        return values + chance * (self._price - values)

    def expected(self, actions: np.ndarray, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return for actions [M, m] at contexts [M, k] the expected values [M] and their stds."""
        assert self.model is not None
        points = self.relative(np.concatenate([actions, contexts], axis=1))
        return self.model.mean(points), self.model.std(points)


def evenly(num_columns: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return points [count, num_columns] that fill the box [-1, 1]^num_columns evenly (Sobol)."""
    if not num_columns or not count:
        return np.zeros((count, num_columns))
    engine = qmc.Sobol(num_columns, seed=np.random.default_rng(generator.integers(1 << 31)))
    # Whole powers of two are balanced.
    points = engine.random_base2((count - 1).bit_length())[:count]
    return 2 * points - 1


def _joined(actions: np.ndarray, context: np.ndarray) -> np.ndarray:
    """Return points [N, m + k] of actions [N, m] in one context [k]."""
    repeated = np.broadcast_to(context, (len(actions), len(context)))
    return np.concatenate([actions, repeated], axis=1)
