"""Where to ask next, and what the answers say: the models that the agent `surrogate` learns from.

A trial is a point (x, c) of the box [-1, 1]^(m + k) and a value to minimise; NaN if it failed. The
first trials fill the box evenly. The contexts of later ones do too. For most of them x is where a
function drawn from the model is least (Thompson sampling): one that agrees with all values, and is
free elsewhere. So a draw weighs what may be gained against what is known, and its value counts for
all contexts. For others x is where the model expects the least value.

After a while trials are made near the answers only (D. Eriksson et al.: Scalable Global
Optimization via Local Bayesian Optimization, 2019), but for all contexts at once: in a region
around a curve from contexts to actions, along which the expected values are least. The region moves
with that curve, and becomes narrower while the curve stays. A model of the region alone sees
ripples that a model of the box takes for noise. Where the latter knows better actions outside, as
where answers jump, they count.

Where trials failed, a second model says how sure failure is, and a failure counts as more than the
worst value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tfrl_systems.agents.surrogates.curves import Curves, num_anchors
from tfrl_systems.agents.surrogates.gaussian_process import GaussianProcess
from tfrl_systems.agents.surrogates.regions import Region, evenly

# Lengths are fitted each time that there are so many times as many values.
_REFIT_GROWTH = 1.25
# Evenly spaced trials come first: so many, or so many for each coordinate.
_FIRST_TRIALS, _FIRST_PER_COLUMN = 20, 5
# Trials for each coordinate before there is a region, its first radius, and the least one.
_WHOLE_PER_COLUMN, _FIRST_RADIUS, _LEAST_RADIUS = 100, 0.2, 1e-4
# It becomes narrower by this factor, when its curve has moved by less than this share of the radius
# and so many trials for each coordinate stay in it.
_SHRINK, _MOST_MOVED, _NEAR_PER_COLUMN = 0.5, 0.6, 100
# Trials of the region at one context. What differs between them is not the context's.
_REPEATS = 4
_NUM_ANSWERS = 64
# Standard deviations by which an action outside the region must look better to count.
_DOUBT = 3.0
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
    """

    num_actions: int
    num_contexts: int
    noise: float | None = None
    points: np.ndarray = dataclasses.field(init=False)
    values: np.ndarray = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Begin without trials."""
        self.points = np.zeros((0, self.num_actions + self.num_contexts))
        self.values = np.zeros(0)
        self._num_fitted = 0
        anchors = self.covering(num_anchors(self.num_contexts), np.random.default_rng(0))
        curves = Curves(anchors)
        self._whole = Region(curves, np.zeros((len(anchors), self.num_actions)))
        self._near: Region | None = None

    @property
    def model(self) -> GaussianProcess | None:
        """Return the model of values in the box; None before the first fit."""
        return self._whole.model

    def add(self, points: np.ndarray, values: np.ndarray) -> None:
        """Add trials."""
        self.points = np.concatenate([self.points, points])
        self.values = np.concatenate([self.values, values])

    def fit(self) -> None:
        """Fit the models to all trials; with fewer than two values there is nothing to fit."""
        count = np.count_nonzero(np.isfinite(self.values))
        if count < 2:
            return
        refit = count >= _REFIT_GROWTH * self._num_fitted
        if refit:
            self._num_fitted = int(count)
        trials = self.points, self.values, self.noise
        self._whole.fit(*trials, refit)
        if len(self.points) < _WHOLE_PER_COLUMN * self.points.shape[1] or not self.num_actions:
            return
        generator = np.random.default_rng(len(self.points))
        contexts = self.covering(_NUM_ANSWERS, generator)
        if self._near is None:
            middle = self._whole.best_curve(contexts, generator)
            self._near = self._whole.zoomed(middle, _FIRST_RADIUS)
            refit = True
        self._near.fit(*trials, refit)
        if refit:
            self._near = self._moved(self._near, contexts, generator)
            self._near.fit(*trials, True)

    def _moved(
        self, region: Region, contexts: np.ndarray, generator: np.random.Generator
    ) -> Region:
        """Return the region around the curve that is best now, narrower if it stays."""
        middle = region.best_curve(contexts, generator)
        step = np.abs(region.curves(contexts) @ (middle - region.middle)).max(axis=1)
        narrower = region.zoomed(middle, max(_SHRINK * region.radius, _LEAST_RADIUS))
        near = np.count_nonzero(narrower.is_near(narrower.relative(self.points)))
        moved = float(np.sqrt(np.mean(step**2))) / region.radius
        if moved < _MOST_MOVED and near >= _NEAR_PER_COLUMN * self.points.shape[1]:
            return narrower
        return region.zoomed(middle, region.radius)

    def propose(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Return points (x, c) [count, m + k] to ask next."""
        num_columns = self.points.shape[1]
        num_first = max(_FIRST_TRIALS, _FIRST_PER_COLUMN * num_columns)
        if self.model is None or len(self.points) < num_first:
            return evenly(num_columns, count, generator)
        repeats = 1 if self._near is None else _REPEATS
        contexts = evenly(self.num_contexts, -(-count // repeats), generator)
        contexts = np.tile(contexts, (repeats, 1))[:count]
        is_near = self._is_in_region(contexts, generator)
        parts = [self._whole.proposals(contexts[~is_near], generator)]
        if self._near is not None:
            parts.append(self._near.proposals(contexts[is_near], generator))
        return np.concatenate(parts)

    def _is_in_region(self, contexts: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return for which contexts [M, k] nothing better is known outside the region, bool [M]."""
        if self._near is None or not len(contexts):
            return np.zeros(len(contexts), bool)
        ours = self._near.absolute(self._near.least(contexts, generator))
        others = self._whole.absolute(self._whole.least(contexts, generator))
        model = self._whole.model
        assert model is not None
        variance = model.noise**2 + model.std(ours) ** 2 + model.std(others) ** 2
        gap = model.mean(ours) - model.mean(others)
        in_region: np.ndarray = gap <= _DOUBT * np.sqrt(variance)
        return in_region

    def minima(self, contexts: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return the actions [M, m] of the least expected value for contexts [M, k]."""
        if self.model is None:
            return np.zeros((len(contexts), self.num_actions))
        points = self._whole.absolute(self._whole.least(contexts, generator))
        is_near = self._is_in_region(contexts, generator)
        if self._near is not None and is_near.any():
            least = self._near.least(contexts[is_near], generator)
            points[is_near] = self._near.absolute(least)
        return points[:, : self.num_actions]

    def expected(self, actions: np.ndarray, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return for actions [M, m] at contexts [M, k] the expected values [M] and their stds.

        In the region its own model says them.
        """
        means, stds = self._whole.expected(actions, contexts)
        if self._near is not None:
            relative = self._near.relative(np.concatenate([actions, contexts], axis=1))
            inside = np.abs(relative[:, : self.num_actions]).max(axis=1) <= 1
            if inside.any():
                near = self._near.expected(actions[inside], contexts[inside])
                means[inside], stds[inside] = near
        return means, stds

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
        state = {"points": self.points, "values": self.values, "fitted": np.array(self._num_fitted)}
        for name, region in (("whole", self._whole), ("near", self._near)):
            if region is not None and region.theta is not None:
                state |= {f"{name}_theta": region.theta, f"{name}_middle": region.middle}
                state[f"{name}_radius"] = np.array(region.radius)
        return state

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Return to the state that `state` described; models are there after the next `fit`."""
        self.points, self.values = state["points"], state["values"]
        self._num_fitted = int(state["fitted"])
        self._whole.theta = state.get("whole_theta")
        if "near_theta" in state:
            middle, radius = state["near_middle"], float(state["near_radius"])
            self._near = Region(self._whole.curves, middle, radius, False, state["near_theta"])
