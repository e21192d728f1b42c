"""A start for a model's fit: a curve x(c) that leads through the best trials of each context.

The evidence of a curve has many maxima where values ripple, because neighbouring ripples look
alike, and a fit by gradients ends in the next one. Where contexts have several trials each, the
best of them say about where the curve is. A smooth curve near most of them comes first, by least
squares whose weights are those of Student's t distribution, so that trials in other valleys hardly
count (P. W. Holland, R. E. Welsch, 1977). Random steps follow, of which those stay that raise the
evidence.
"""

from __future__ import annotations

import math

import numpy as np

from tfrl_systems.agents.surrogates.gaussian_process import CURVE_SPREAD, Kernel

# The best trials of a context through which a curve leads, and how near, from coarse to fine.
_NUM_BEST, _SCALES, _NUM_ROUNDS = 3, (0.3, 0.1, 0.03, 0.01), 10
# The random steps, between which sizes they are, and how many trials judge them.
_NUM_STEPS, _LOG_SIZES, _NUM_JUDGES = 300, (math.log(0.003), math.log(0.1)), 200


def aligned(
    kernel: Kernel, theta: np.ndarray, points: np.ndarray, values: np.ndarray
) -> np.ndarray | None:
    """Return θ with the weights of a curve through the best trials; None if contexts are all new.

    Args:
      kernel: has curves.
      theta: θ, float64 [P].
      points: [N, n].
      values: [N], finite.
    """
    ranks = ranks_in_context(points[:, kernel.num_actions :], values)
    if not len(ranks) or ranks.max() < _NUM_BEST:
        return None
    num_others = kernel.noise_place + 1
    rows = np.flatnonzero((ranks >= 0) & (ranks < _NUM_BEST))
    features = kernel.features(points[rows])
    theta = theta.copy()
    theta[num_others:] = _curve(features, points[rows, : kernel.num_actions]).ravel()
    rows = np.argsort(np.where(ranks < 0, len(ranks), ranks), kind="stable")[:_NUM_JUDGES]
    points, values = points[rows], values[rows]
    values = (values - values.mean()) / (values.std() or 1.0)
    features = kernel.features(points)
    least = kernel.loss(theta, points, values, features)
    generator = np.random.default_rng(0)
    for size in np.exp(generator.uniform(*_LOG_SIZES, _NUM_STEPS)):
        moved = theta.copy()
        moved[num_others:] += size * generator.standard_normal(len(theta) - num_others)
        loss = kernel.loss(moved, points, values, features)
        if loss < least:
            theta, least = moved, loss
    return theta


def ranks_in_context(contexts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the rank [N] of each value among those of its context [N, k], the least is 0.

    It is -1 where a context has no other value.
    """
    if not contexts.shape[1]:
        return np.zeros(0, int)
    _, places, counts = np.unique(contexts, axis=0, return_inverse=True, return_counts=True)
    places = places.ravel()
    order = np.lexsort((values, places))
    ranks = np.empty(len(values), int)
    ranks[order] = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    ranks[counts[places] == 1] = -1
    return ranks


def _curve(features: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Return the weights [F, m] of a curve near most of the actions [N, m] at features [N, F]."""
    weights = np.ones(len(actions))
    prior = np.eye(features.shape[1]) / CURVE_SPREAD**2
    for scale in np.repeat(_SCALES, _NUM_ROUNDS):
        left = features.T * weights
        curve: np.ndarray = np.linalg.solve(left @ features + scale**2 * prior, left @ actions)
        missed = np.sum((actions - features @ curve) ** 2, axis=1)
        weights = 1 / (1 + missed / scale**2)
    return curve
