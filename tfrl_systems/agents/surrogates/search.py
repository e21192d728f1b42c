"""Where to ask next, and what the answers say: the model that the agent `surrogate` learns from.

A trial is a point (x, c) of the box [-1, 1]^(m + k) and a value to minimise; NaN if it failed. The
first trials fill the box evenly. For most of the later ones x is where a function drawn from the
model is least (Thompson sampling): one that agrees with all values, and is free elsewhere. So a
draw weighs what may be gained against what is known, and its value counts for all contexts. For the
others x is the answer that the model would give.

Several trials share each context. Where each has its own, nothing tells what depends on the context
alone from ripples over x. The number of contexts grows as the root of that of trials, so each is
searched more closely, too.

Values are often much the same function of x - x(c) for all c. So the model's actions count from a
curve x(c) that is fitted with it, and a value at one context tells of all others; `alignment` says
where the fit begins.

An answer is where the value is surely low: of the model's minima the one whose expected value and
some standard deviations are least together. For a model of few values is often wrong where it
expects most.

Where trials failed, a second model says how sure failure is, and a failure counts as more than the
worst value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

import numpy as np
from scipy.sparse import csgraph
from scipy.stats import qmc

from tfrl_systems.agents.surrogates.alignment import aligned
from tfrl_systems.agents.surrogates.curves import Curves, num_anchors
from tfrl_systems.agents.surrogates.gaussian_process import GaussianProcess, make_kernel

# The most points that a model holds, because its cost grows with their cube; and that its lengths
# are fitted to, each time that there are so many times as many.
_MAX_POINTS, _FIT_POINTS, _REFIT_GROWTH = 2000, 400, 1.25
# Of more points half are those that tell most, so that what is far from most is not forgotten; the
# others are spread evenly. Of more than so many all are spread evenly.
_MOST_COMPARED = 4000
# How much finer than usual ripples may be, by which curves through many trials are told apart.
_FINER = (0.3, 0.1, 0.05)
# Evenly spaced trials come first: so many, or so many for each coordinate.
_FIRST_TRIALS, _FIRST_PER_COLUMN = 20, 5
# Trials share so many contexts for each column, times the root of the number of trials.
_CONTEXTS_PER_ROOT = 2
# One of so many proposals is where the expected value is least.
_BEST_SHARE = 4
# Actions that are looked at in a context, and how many of them are descended from.
_PER_ACTION, _NUM_NEAREST, _NUM_STARTS, _DESCENT_ROUNDS = 128, 64, 6, 40
# At how many contexts the valleys of answers are compared.
_NUM_COMPARED = 32
# How many standard deviations an answer's value is taken to be above what is expected.
_CAUTION = 2.0
# The first step of a descent, and of one that is to stay in its valley.
_FIRST_STEP, _FIRST_STEP_IN_VALLEY = 0.05, 0.01
# Widths of the steps around the best action at which a drawn function is looked at.
_STEPS = (0.3, 0.1, 0.03, 0.01)
# How far from answers values are looked at to weigh them, and the bounds of weights.
_SMALL_STEP, _STEEPNESS = 0.02, (0.03, 30.0)


@dataclasses.dataclass
class Search:
    """Trials so far, and the models of them.

    Attributes:
      num_actions: m.
      num_contexts: k.
      noise: standard deviation of the values' noise in their units; None to estimate it.
      points: (x, c) [N, m + k].
      values: [N]; NaN where the trial failed.
      model: the model of values; None before the first fit.
      failures: the model of 1 where a trial failed and 0 elsewhere; None if none failed.
    """

    num_actions: int
    num_contexts: int
    noise: float | None = None
    points: np.ndarray = dataclasses.field(init=False)
    values: np.ndarray = dataclasses.field(init=False)
    model: GaussianProcess | None = dataclasses.field(default=None, init=False)
    failures: GaussianProcess | None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        """Begin without trials."""
        self.points = np.zeros((0, self.num_actions + self.num_contexts))
        self.values = np.zeros(0)
        self._theta: np.ndarray | None = None
        self._num_fitted = 0
        anchors = self.covering(num_anchors(self.num_contexts), np.random.default_rng(0))
        self._curves = Curves(anchors)

    def add(self, points: np.ndarray, values: np.ndarray) -> None:
        """Add trials."""
        self.points = np.concatenate([self.points, points])
        self.values = np.concatenate([self.values, values])

    def fit(self) -> None:
        """Fit the models to all trials; with fewer than two values there is nothing to fit."""
        has_value = np.isfinite(self.values)
        if np.count_nonzero(has_value) < 2:
            return
        refit = np.count_nonzero(has_value) >= _REFIT_GROWTH * self._num_fitted
        if refit:
            self._num_fitted = int(np.count_nonzero(has_value))
        if not has_value.all():
            self.failures = self._fitted(1.0 - has_value, None, None, refit=True)
        self.model = self._fitted(self.values, self._theta, self.noise, refit)
        self._theta = self.model.theta

    def _fitted(
        self, values: np.ndarray, theta: np.ndarray | None, noise: float | None, refit: bool
    ) -> GaussianProcess:
        """Return a model of those values [N] that are there; its θ was `theta`."""
        rows = _spread(np.flatnonzero(np.isfinite(values)), _MOST_COMPARED)
        if noise is not None:
            noise /= float(np.std(values[rows])) or 1.0
        kernel = make_kernel(self.num_actions, self.num_contexts, self._curves, noise)
        starts = [] if theta is None else [theta]
        if len(rows) > _MAX_POINTS:
            order = kernel.most_telling(starts[0] if starts else kernel.usual, self.points[rows])
            telling, others = np.split(order, [_MAX_POINTS // 2])
            spread = _spread(np.sort(others), _MAX_POINTS - len(telling))
            rows = np.sort(rows[np.concatenate([telling, spread])])
        # With more values than a fit sees, it is no longer begun anew, but from more curves.
        if not starts or (refit and len(rows) <= _FIT_POINTS):
            starts += kernel.starts
        if refit and values is self.values:
            bases = [starts[0]]
            if theta is not None and len(rows) > _FIT_POINTS:
                bases += [kernel.finer(share) for share in _FINER]
            curves = (aligned(kernel, base, self.points[rows], values[rows]) for base in bases)
            starts += [start for start in curves if start is not None]
        num_fitted = _FIT_POINTS if refit else 0
        return GaussianProcess(kernel, self.points[rows], values[rows], starts, num_fitted)

    def propose(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Return points (x, c) [count, m + k] to ask next."""
        num_columns = self.points.shape[1]
        if self.model is None or len(self.points) < max(
            _FIRST_TRIALS, _FIRST_PER_COLUMN * num_columns
        ):
            points = evenly(num_columns, count, generator)
            points[:, self.num_actions :] = self._contexts(count, generator)
            return points
        contexts = self._contexts(count, generator)
        num_best = min(count // _BEST_SHARE, len(np.unique(contexts, axis=0)))
        best = np.concatenate([self.minima(contexts[:num_best], generator), contexts[:num_best]], 1)
        drawn = [self._drawn(context, generator) for context in contexts[num_best:]]
        return self._new(
            np.concatenate([best, np.array(drawn).reshape(-1, num_columns)]), generator
        )

    def _new(self, points: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return points, with other actions where they repeat a trial."""
        for row, point in enumerate(points):
            before = np.concatenate([self.points, points[:row]])
            if (before == point).all(axis=1).any():
                points[row, : self.num_actions] = generator.uniform(-1, 1, self.num_actions)
        return points

    def _contexts(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Return the contexts [count, k] with the fewest trials, all different ones first."""
        if not self.num_contexts:
            return np.zeros((count, 0))
        per_root = _CONTEXTS_PER_ROOT * self.num_contexts
        num_shared = math.ceil(per_root * math.sqrt(len(self.points) + count))
        shared = _nested(self.num_contexts, num_shared)
        is_at = (shared[:, np.newaxis] == self.points[:, self.num_actions :]).all(axis=-1)
        num_trials, order = is_at.sum(axis=1), generator.permutation(num_shared)
        chosen = np.zeros(count, int)
        for row in range(count):
            chosen[row] = order[num_trials[order].argmin()]
            num_trials[chosen[row]] += 1
        chosen = generator.permutation(chosen)
        first = np.sort(np.unique(chosen, return_index=True)[1])
        return shared[np.concatenate([chosen[first], np.delete(chosen, first)])]

    def _drawn(self, context: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return the least point, for a context, of a function drawn from the model."""
        assert self.model is not None
        even = generator.uniform(-1, 1, (_PER_ACTION * self.num_actions // 2, self.num_actions))
        best = self._starts(even, context)[0]
        around = [
            best + step * generator.standard_normal((25, self.num_actions)) for step in _STEPS
        ]
        points = _joined(np.clip(np.concatenate([even, *around]), -1, 1), context)
        values = self._priced(self.model.sample(points, generator), points)
        return points[values.argmin()]

    def minima(self, contexts: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return the answers [M, m], where values are surely low, for contexts [M, k]."""
        if self.model is None or not len(contexts):
            return np.zeros((len(contexts), self.num_actions))
        even = evenly(self.num_actions, _PER_ACTION * self.num_actions, generator)
        starts = np.concatenate([self._starts(even, context) for context in contexts])
        repeated = np.repeat(contexts, _NUM_STARTS, axis=0)
        ends, means = self._descended(starts, repeated)
        means += _CAUTION * self.model.std(np.concatenate([ends, repeated], axis=1))
        best = means.reshape(-1, _NUM_STARTS).argmin(axis=1)
        rows = np.arange(len(contexts))
        minima: np.ndarray = ends.reshape(-1, _NUM_STARTS, self.num_actions)[rows, best]
        return minima

    def in_one_valley(self, answers: np.ndarray, contexts: np.ndarray) -> np.ndarray:
        """Return answers [M, m] in the same valley for all contexts [M, k].

        Where valleys are about as deep as each other, `answers` [M, m], which are those of
        `minima`, jump between them. Of these, as they count from the curve, that is taken which
        leads into the valley of which values are surely low in the mean. From its context on, each
        answer begins at that of the nearest context that has one, and follows the curve.
        """
        assert self.model is not None
        points = np.concatenate([answers, contexts], axis=1)
        relative = self.model.kernel.relative(self.model.theta, points)[:, : self.num_actions]
        curve = answers - relative
        rows = np.linspace(0, len(contexts) - 1, min(_NUM_COMPARED, len(contexts))).astype(int)

        def height(row: int) -> float:
            actions = np.clip(curve[rows] + relative[row], -1, 1)
            means, stds = self.expected(actions, contexts[rows])
            priced = self._priced(means, np.concatenate([actions, contexts[rows]], axis=1))
            return float(np.mean(priced + _CAUTION * stds))

        valley = answers.copy()
        for row, before in _outwards(contexts, min(rows, key=height)):
            start = np.clip(valley[before] + curve[row] - curve[before], -1, 1)
            ends, _ = self._descended(start[np.newaxis], contexts[[row]], _FIRST_STEP_IN_VALLEY)
            valley[row] = ends[0]
        return valley

    def _starts(self, even: np.ndarray, context: np.ndarray) -> np.ndarray:
        """Return actions to descend from: the best of evenly spaced ones and of trials near by."""
        distance = np.sum((self.points[:, self.num_actions :] - context) ** 2, axis=1)
        nearest = np.argsort(distance, kind="stable")[:_NUM_NEAREST]
        actions = np.concatenate([even, self.points[nearest, : self.num_actions]])
        points = _joined(actions, context)
        assert self.model is not None
        means = self._priced(self.model.mean(points), points)
        return actions[np.argsort(means, kind="stable")[:_NUM_STARTS]]

    def _descended(
        self, actions: np.ndarray, contexts: np.ndarray, first_step: float = _FIRST_STEP
    ) -> tuple[np.ndarray, np.ndarray]:
        """Follow the gradient from actions [M, m], each with a step of its own."""
        best, step = actions.copy(), np.full((len(actions), 1), first_step)
        means, gradient = self.expected_and_gradients(best, contexts)
        for _ in range(_DESCENT_ROUNDS):
            norm = np.maximum(np.linalg.norm(gradient, axis=1, keepdims=True), 1e-300)
            tried = np.clip(best - step * gradient / norm, -1, 1)
            tried_means, tried_gradient = self.expected_and_gradients(tried, contexts)
            is_better = tried_means < means
            best[is_better], means[is_better] = tried[is_better], tried_means[is_better]
            gradient[is_better] = tried_gradient[is_better]
            step = np.where(is_better[:, np.newaxis], 1.5 * step, 0.4 * step)
        return best, means

    def expected_and_gradients(
        self, actions: np.ndarray, contexts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return expected values [M] of actions [M, m], failure priced, and gradients [M, m]."""
        assert self.model is not None
        points = np.concatenate([actions, contexts], axis=1)
        means, gradient = self.model.mean_and_gradient(points)
        gradient = gradient[:, : self.num_actions]
        if self.failures is None:
            return means, gradient
        chance, chance_gradient = self.failures.mean_and_gradient(points)
        is_inside = (chance > 0) & (chance < 1)
        chance_gradient = chance_gradient[:, : self.num_actions] * is_inside[:, np.newaxis]
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

    @property
    def _price(self) -> float:
        """Return what a failure counts as: more than any value that there was."""
        assert self.model is not None
        return float(np.nanmax(self.values)) + self.model.unit

    def expected(self, actions: np.ndarray, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return for actions [M, m] at contexts [M, k] the expected values [M] and their stds."""
        assert self.model is not None
        points = np.concatenate([actions, contexts], axis=1)
        return self.model.mean(points), self.model.std(points)

    def steepness(self, actions: np.ndarray, contexts: np.ndarray) -> np.ndarray:
        """Return how dear it is to miss minima [M, m] at contexts [M, k] in each action [M, m].

        It is the rise of the expected value at small steps, over its mean, within bounds: where
        values are flat actions are free, but shall not be wild.
        """
        means = self.expected(actions, contexts)[0]
        rises = np.zeros(actions.shape)
        for place, step in enumerate(_SMALL_STEP * np.eye(self.num_actions)):
            for beside in (actions - step, actions + step):
                rises[:, place] += self.expected(np.clip(beside, -1, 1), contexts)[0] - means
        rises = np.maximum(rises, 0)
        return np.clip(rises / (rises.mean() or 1.0), *_STEEPNESS)

    def covering(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Return contexts [M, k], M about `count`, that fill [-1, 1]^k up to its sides."""
        if self.num_contexts == 0:
            return np.zeros((1, 0))
        if self.num_contexts == 1:
            return np.linspace(-1, 1, count)[:, np.newaxis]
        inner, outer = np.split(evenly(self.num_contexts, count, generator), [count * 3 // 4])
        # The nearest coordinate moves to its side; without such points corners would be guessed.
        rows, nearest = np.arange(len(outer)), np.abs(outer).argmax(axis=1)
        outer[rows, nearest] = np.sign(outer[rows, nearest])
        return np.concatenate([inner, outer])

    def state(self) -> dict[str, np.ndarray]:
        """Return all that `restore` needs."""
        theta = np.zeros(0) if self._theta is None else self._theta
        fitted = np.array(self._num_fitted)
        return {"points": self.points, "values": self.values, "theta": theta, "fitted": fitted}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Return to the state that `state` described; models are there after the next `fit`."""
        self.points, self.values = state["points"], state["values"]
        self._theta = state["theta"] if len(state["theta"]) else None
        self._num_fitted = int(state["fitted"])


def _spread(rows: np.ndarray, count: int) -> np.ndarray:
    """Return as many of rows [N] as wished, or all, evenly spaced."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)]


def evenly(num_columns: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return points [count, num_columns] that fill the box [-1, 1]^num_columns evenly (Sobol)."""
    if not num_columns or not count:
        return np.zeros((count, num_columns))
    engine = qmc.Sobol(num_columns, seed=np.random.default_rng(generator.integers(1 << 31)))
    # Whole powers of two are balanced.
    points = engine.random_base2((count - 1).bit_length())[:count]
    return 2 * points - 1


def _nested(num_columns: int, count: int) -> np.ndarray:
    """Return points [count, num_columns] of the box, the first few of which are even, too."""
    engine = qmc.Sobol(num_columns, scramble=False)
    return 2 * engine.random_base2((count - 1).bit_length())[:count] - 1


def _outwards(contexts: np.ndarray, start: int) -> Iterator[tuple[int, int]]:
    """Yield all contexts [M, k] but one, each after the one that it is reached from.

    Both are places; the ways from `start` are those of the shortest tree.
    """
    distances = np.linalg.norm(contexts[:, np.newaxis] - contexts, axis=-1)
    tree = csgraph.minimum_spanning_tree(distances)
    order, before = csgraph.breadth_first_order(tree, start, directed=False)
    yield from ((row, before[row]) for row in order[1:])


def _joined(actions: np.ndarray, context: np.ndarray) -> np.ndarray:
    """Return points [N, m + k] of actions [N, m] in one context [k]."""
    repeated = np.broadcast_to(context, (len(actions), len(context)))
    return np.concatenate([actions, repeated], axis=1)
