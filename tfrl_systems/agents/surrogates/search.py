"""Where to ask next, and what the answers say: the model that the agent `surrogate` learns from.

A trial is a point (x, c) of [-1, 1]^(m + k) and a value to minimise; NaN if it failed. Two models:

  wide   of all points, or of as many as it can hold
  near   of points near the path of the minimum, relative to that path: (x - x(c), c). There ripples
         that follow the path stand still, so that trials at all c tell of each.

Half of the proposals are samples from the wide model: where one function that agrees with all values
is least (Thompson sampling), for a c that is new. One draw weighs what may be gained against what
is known, and what it finds counts for all c. The others lie evenly around the path. The radius
shrinks by equal factors as the path comes to rest.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from scipy.stats import qmc

from tfrl_systems.agents.surrogates.gaussian_process import GaussianProcess, make_kernel
from tfrl_systems.agents.surrogates.paths import Path

# The most points that a model holds; its cost grows with their cube.
_MAX_WIDE, _MAX_NEAR = 800, 800
_REFIT_GROWTH = 1.25
_FIRST_RADIUS, _LAST_RADIUS, _SHRINK = 0.2, 1e-4, 0.65
# The near model reaches further than trials are proposed, and needs so many points.
_REACH, _MIN_NEAR = 1.5, 12
# Widths of steps around a good point, as shares of the box.
_STEPS = (0.3, 0.1, 0.03, 0.01)
_NUM_PATH_CONTEXTS = 200
_RIPPLED, _MIN_RIPPLED = 0.05, 250
_NUM_STARTS = 4
_AROUND_SHARE = 0.8
# One of so many proposals is where the expected value is least.
_BEST_SHARE = 4
# What the certainty of failure costs, in units of the values' spread.
_FAILURE_COST = 3.0


@dataclasses.dataclass
class Search:
    """Trials so far, and the models of them.

    Attributes:
      num_actions: m.
      num_contexts: k.
      noise: standard deviation of the values' noise in their units; None to estimate it.
      points: (x, c) [N, m + k].
      values: [N]; NaN where the trial failed.
      wide, near, failures: the models; `failures` is of 1 where a trial failed and 0 elsewhere. None
        before the first fit, or if there is nothing to fit.
      path: the path of the minimum.
      radius: how far around the path trials are proposed.
    """

    num_actions: int
    num_contexts: int
    noise: float | None = None
    points: np.ndarray = dataclasses.field(init=False)
    values: np.ndarray = dataclasses.field(init=False)
    wide: GaussianProcess | None = dataclasses.field(default=None, init=False)
    near: GaussianProcess | None = dataclasses.field(default=None, init=False)
    failures: GaussianProcess | None = dataclasses.field(default=None, init=False)
    path: Path | None = dataclasses.field(default=None, init=False)
    is_rippled: bool = dataclasses.field(default=False, init=False)
    radius: float = dataclasses.field(default=_FIRST_RADIUS, init=False)

    def __post_init__(self) -> None:
        """Begin without trials."""
        self.points = np.zeros((0, self.num_actions + self.num_contexts))
        self.values = np.zeros(0)
        self._theta: np.ndarray | None = None
        self._fitted = 0

    def add(self, points: np.ndarray, values: np.ndarray) -> None:
        """Add trials."""
        self.points = np.concatenate([self.points, points])
        self.values = np.concatenate([self.values, values])

    def fit(self, generator: np.random.Generator) -> None:
        """Fit the models to all trials, and move the path."""
        is_good = np.isfinite(self.values)
        self.failures = None
        if not is_good.all():
            lengths = [0.5] * self.points.shape[1]
            rows = self._some(np.arange(len(self.points)), _MAX_WIDE)
            kernel = make_kernel(lengths, self.num_actions)
            self.failures = GaussianProcess(kernel, self.points[rows], 1.0 - is_good[rows])
        good = np.flatnonzero(is_good)
        if len(good) < 2:
            return
        rows = self._some(good, _MAX_WIDE)
        refit = len(good) >= _REFIT_GROWTH * self._fitted
        self._fitted = len(good) if refit else self._fitted
        lengths = [1.0] * self.points.shape[1]
        kernel = make_kernel(lengths, self.num_actions, self._noise_in(self.values[rows]))
        self.wide = GaussianProcess(
            kernel, self.points[rows], self.values[rows], self._theta, 400 if refit else 0
        )
        self._theta = self.wide.theta
        # What the wide model cannot resolve, it takes for noise.
        is_noisy = math.exp(self._theta[-1]) > _RIPPLED and len(good) >= _MIN_RIPPLED
        self.is_rippled = self.is_rippled or is_noisy
        if self.is_rippled:
            self._move_path(good, generator)

    def _noise_in(self, values: np.ndarray) -> float | None:
        return None if self.noise is None else self.noise / (float(np.std(values)) or 1.0)

    def _some(self, rows: np.ndarray, count: int) -> np.ndarray:
        """Return at most `count` of the rows, evenly spaced in the order in which they came."""
        places = np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int))
        return rows[places]

    def _move_path(self, good: np.ndarray, generator: np.random.Generator) -> None:
        contexts = self.contexts(_NUM_PATH_CONTEXTS, generator)
        path, has_narrowed = self.path, self.radius < _FIRST_RADIUS
        if path is None or not has_narrowed:
            actions = self.wide_minima(contexts, generator)
            path = Path.through(contexts, actions, np.ones(len(contexts)))
            path = path.towards(self._expected, contexts)
        self.near, moved = None, math.inf
        offset = self.points[good, : self.num_actions] - path(self.points[good, self.num_actions :])
        is_near = np.all(np.abs(offset) <= _REACH * self.radius, axis=1)
        if np.count_nonzero(is_near) >= _MIN_NEAR * self.num_actions:
            rows = self._some(np.flatnonzero(is_near), _MAX_NEAR)
            relative = np.concatenate(
                [offset[rows], self.points[good[rows], self.num_actions :]], axis=1
            )
            self._fit_near(relative, self.values[good[rows]])
            assert self.near is not None
            better = path.towards(self.near.mean_and_gradient, contexts, path, self.radius)
            moved = float(np.sqrt(np.mean((better(contexts) - path(contexts)) ** 2)))
            self._centre, path = path, better
        self.path = path
        num_near = np.count_nonzero(is_near)
        if moved < self.radius / 2 and num_near >= 6 * path.weights.size:
            self.radius = max(_SHRINK * self.radius, _LAST_RADIUS)

    def _fit_near(self, relative: np.ndarray, values: np.ndarray) -> None:
        lengths = [2 * self.radius] * self.num_actions + [1.0] * self.num_contexts
        kernel = make_kernel(lengths, self.num_actions, self._noise_in(values))
        self.near = GaussianProcess(kernel, relative, values)

    def _expected(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what values at points are expected to be, failures counted, and the gradients."""
        assert self.wide is not None
        mean, gradient = self.wide.mean_and_gradient(points)
        if self.failures is not None:
            failure, failure_gradient = self.failures.mean_and_gradient(points)
            cost = _FAILURE_COST * self.wide.unit
            mean = mean + cost * np.clip(failure, 0, 1)
            is_inside = (failure > 0) & (failure < 1)
            gradient = gradient + cost * failure_gradient * is_inside[:, np.newaxis]
        return mean, gradient

    def contexts(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Return contexts [count, k] that fill [-1, 1]^k evenly."""
        return _evenly(self.num_contexts, count, generator)

    def covering(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Return contexts [M, k], M near `count`, that fill [-1, 1]^k up to its sides."""
        if self.num_contexts == 0:
            return np.zeros((1, 0))
        if self.num_contexts == 1:
            return np.linspace(-1, 1, count)[:, np.newaxis]
        inner = self.contexts(count, generator)
        # Points that are moved outwards to the nearest side; without them corners are guessed.
        outer = self.contexts(count // 4, generator)
        nearest = np.abs(outer).argmax(axis=1)
        rows = np.arange(len(outer))
        outer[rows, nearest] = np.sign(outer[rows, nearest])
        return np.concatenate([inner, outer])

    def expected(self, actions: np.ndarray, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return for actions [M, m] at contexts [M, k] the expected values [M] and their stds."""
        assert self.wide is not None
        points = np.concatenate([actions, contexts], axis=1)
        return self.wide.mean(points), self.wide.std(points)

    def wide_minima(self, contexts: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return the actions [M, m] of the least expected value for contexts [M, k]."""
        if not len(contexts):
            return np.zeros((0, self.num_actions))
        even = _evenly(self.num_actions, 128 * self.num_actions, generator)
        starts = [self._starts(even, context) for context in contexts]
        repeated = np.repeat(contexts, _NUM_STARTS, axis=0)
        ends = self._descended(np.concatenate(starts), repeated)
        mean, _ = self._expected(np.concatenate([ends, repeated], axis=1))
        best = mean.reshape(-1, _NUM_STARTS).argmin(axis=1)
        return ends.reshape(-1, _NUM_STARTS, self.num_actions)[np.arange(len(best)), best]

    def _starts(self, even: np.ndarray, context: np.ndarray) -> np.ndarray:
        """Return actions [S, m] to descend from: the best of evenly spaced ones and of trials."""
        distance = np.sum((self.points[:, self.num_actions :] - context) ** 2, axis=1)
        nearest = np.argsort(distance, kind="stable")[:64]
        actions = np.concatenate([even, self.points[nearest, : self.num_actions]])
        mean = self._mean(_joined(actions, context))
        return actions[np.argsort(mean, kind="stable")[:_NUM_STARTS]]

    def _mean(self, points: np.ndarray) -> np.ndarray:
        assert self.wide is not None
        mean = self.wide.mean(points)
        if self.failures is not None:
            mean = mean + _FAILURE_COST * self.wide.unit * np.clip(self.failures.mean(points), 0, 1)
        return mean

    def _descended(self, actions: np.ndarray, contexts: np.ndarray, rounds: int = 40) -> np.ndarray:
        """Follow the gradient from actions [M, m], each with a step of its own."""
        best, step = actions.copy(), np.full((len(actions), 1), 0.05)
        mean, gradient = self._expected(np.concatenate([best, contexts], axis=1))
        for _ in range(rounds):
            slope = gradient[:, : self.num_actions]
            norm = np.linalg.norm(slope, axis=1, keepdims=True)
            tried = np.clip(best - step * slope / np.maximum(norm, 1e-300), -1, 1)
            mean_tried, gradient_tried = self._expected(np.concatenate([tried, contexts], axis=1))
            is_better = mean_tried < mean
            best[is_better], mean[is_better] = tried[is_better], mean_tried[is_better]
            gradient[is_better] = gradient_tried[is_better]
            step = np.where(is_better[:, np.newaxis], 1.5 * step, 0.4 * step)
        return best

    def propose(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Return points (x, c) [count, m + k] to ask next."""
        if self.wide is None or len(self.points) < max(20, 5 * self.points.shape[1]):
            return _evenly(self.points.shape[1], count, generator)
        contexts = self.contexts(count, generator)
        num_around = round(_AROUND_SHARE * count) if self.is_rippled else 0
        num_best = (count - num_around) // _BEST_SHARE
        around, best, drawn = np.split(contexts, [num_around, num_around + num_best])
        parts = [np.concatenate([self.wide_minima(best, generator), best], axis=1)]
        if num_around:
            assert self.path is not None
            offsets = self.radius * _evenly(self.num_actions, num_around, generator)
            actions = np.clip(self.path(around) + offsets, -1, 1)
            parts.append(np.concatenate([actions, around], axis=1))
        parts += [self._drawn(context, generator)[np.newaxis] for context in drawn]
        return np.concatenate(parts)

    def _drawn(self, context: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return the least point, for a context, of a function drawn from the wide model."""
        assert self.wide is not None
        even = generator.uniform(-1, 1, (50 * self.num_actions, self.num_actions))
        best = self._starts(even, context)[0]
        around = [
            best + step * generator.standard_normal((25, self.num_actions)) for step in _STEPS
        ]
        points = _joined(np.clip(np.concatenate([even, *around]), -1, 1), context)
        values = self.wide.sample(points, generator)
        if self.failures is not None:
            values = values + _FAILURE_COST * self.wide.unit * np.clip(
                self.failures.mean(points), 0, 1
            )
        return points[values.argmin()]

    def answers(self, contexts: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return the best actions [M, m] that the models know for contexts [M, k]."""
        if self.wide is None:
            return np.zeros((len(contexts), self.num_actions))
        alone = self.wide_minima(contexts, generator)
        if self.path is None or self.radius == _FIRST_RADIUS:
            return alone
        on_path = self.path(contexts)
        mean_path, _ = self._expected(np.concatenate([on_path, contexts], axis=1))
        mean_alone, _ = self._expected(np.concatenate([alone, contexts], axis=1))
        # The path is left where the model is sure that it is not the minimum.
        doubt = self.wide.std(np.concatenate([on_path, contexts], axis=1)) + self.wide.noise
        leaves = mean_alone < mean_path - doubt
        return np.where(leaves[:, np.newaxis], alone, on_path)

    def state(self) -> dict[str, np.ndarray]:
        """Return all that `restore` needs."""
        weights = np.zeros((0, 0)) if self.path is None else self.path.weights
        theta = np.zeros(0) if self._theta is None else self._theta
        return {
            **{"points": self.points, "values": self.values, "theta": theta, "weights": weights},
            "numbers": np.array([self.radius, self._fitted, self.is_rippled]),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Return to the state that `state` described; models are there after the next `fit`."""
        self.points, self.values = state["points"], state["values"]
        self._theta = state["theta"] if len(state["theta"]) else None
        self.path = Path(state["weights"], self.num_contexts) if state["weights"].size else None
        self.radius, self._fitted = float(state["numbers"][0]), int(state["numbers"][1])
        self.is_rippled = bool(state["numbers"][2])


def _joined(actions: np.ndarray, context: np.ndarray) -> np.ndarray:
    repeated = np.broadcast_to(context, (len(actions), len(context)))
    return np.concatenate([actions, repeated], axis=1)


def _evenly(num_columns: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return points [count, num_columns] that fill the box [-1, 1]^num_columns evenly."""
    if not num_columns or not count:
        return np.zeros((count, num_columns))
    sobol = qmc.Sobol(
        num_columns, scramble=True, seed=np.random.default_rng(generator.integers(1 << 31))
    )
    exponent = max(count - 1, 0).bit_length()
    points = sobol.random_base2(exponent)[:count]
    return 2 * points - 1
