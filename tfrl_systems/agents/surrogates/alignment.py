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
    """Return θ with a curve through the best trials; None where no context has enough of them.

    θ is float64 [P], points are [N, n] and values [N], finite.
    """
    num_actions = kernel.num_actions
    ranks = ranks_in_context(points[:, num_actions:], values)
    if ranks.max() < _NUM_BEST:
        return None
    best = points[(ranks >= 0) & (ranks < _NUM_BEST)]
    weights = _curve(kernel.features(best), best[:, :num_actions])
    theta = np.append(theta[: kernel.noise_place + 1], weights)
    ranks[ranks < 0] = len(ranks)
    judges = np.argsort(ranks, kind="stable")[:_NUM_JUDGES]
    return _climbed(kernel, theta, points[judges], values[judges])


def _climbed(
    kernel: Kernel, theta: np.ndarray, points: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Return θ after random steps of the curve's weights that lower the loss."""
    values = (values - values.mean()) / (values.std() or 1.0)
    arguments = points, values, kernel.features(points)
    generator, least = np.random.default_rng(0), kernel.loss(theta, *arguments)
    num_fixed = kernel.noise_place + 1
    for size in np.exp(generator.uniform(*_LOG_SIZES, _NUM_STEPS)):
        moved = theta.copy()
        moved[num_fixed:] += size * generator.standard_normal(len(theta) - num_fixed)
        loss = kernel.loss(moved, *arguments)
        if loss < least:
            theta, least = moved, loss
    return theta


def ranks_in_context(contexts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the rank [N] of each value among those of its context [N, k], the least is 0.

    It is -1 where a context has no other value.
    """
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
