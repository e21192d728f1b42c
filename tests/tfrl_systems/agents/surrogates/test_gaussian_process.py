"""A Gaussian process: its gradients against differences, and what it says of values it has seen."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tfrl_systems.agents.surrogates.curves import Curves
from tfrl_systems.agents.surrogates.gaussian_process import (
    GaussianProcess,
    Kernel,
    Term,
    make_kernel,
)

CURVES = Curves(np.zeros((1, 1)))


def bowl(points):
    return (points[:, 0] - 0.5 * points[:, 1]) ** 2


def points_in_box(count, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 2))


def differences(function, at, step=1e-5):
    moves = step * np.eye(len(at))
    return np.array([function(at + move) - function(at - move) for move in moves]) / (2 * step)


def test_two_points_by_hand():
    """k(a, a) = 1, and √5 apart d = 5: k = (1 + 5 + 25/3) e^-5 = 0.0966; no noise to speak of."""
    kernel = Kernel((Term((0,), (1.0,), 1.0),), CURVES, 0, noise=0.0)
    left, right = np.array([[0.0]]), np.array([[math.sqrt(5)]])
    assert kernel(kernel.usual, left, right)[0, 0] == pytest.approx((6 + 25 / 3) * math.exp(-5))
    # Values 1 and 3 have the middle 2 and the spread 1.
    process = GaussianProcess(kernel, np.array([[0.0], [9.0]]), np.array([1.0, 3.0]), fit_points=0)
    np.testing.assert_allclose(process.mean(np.array([[0.0], [9.0], [1e6]])), [1, 3, 2], atol=1e-4)
    np.testing.assert_allclose(process.std(np.array([[0.0], [1e6]])), [0, 1], atol=1e-3)


def test_the_gradient_of_the_evidence_is_that_of_differences():
    points = points_in_box(30)
    kernel = make_kernel(1, 1, Curves(np.array([[-1.0], [0.0], [1.0]])))
    theta, features = kernel.usual + 0.1, kernel.features(points)
    loss, gradient = kernel.loss_and_gradient(theta, points, bowl(points), features)
    expected = differences(lambda at: kernel.loss(at, points, bowl(points), features), theta)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)


def test_of_several_fits_to_few_points_that_counts_which_explains_all():
    """Eight of sixty values are explained by a wave of either length, sixty by one of them."""
    kernel = Kernel((Term((0,), (0.5,), 1.0),), CURVES, 0, noise=0.3)
    generator = np.random.default_rng(4)
    points = generator.uniform(-1, 1, (60, 1))
    values = np.sin(3 * points[:, 0]) + 0.5 * generator.standard_normal(60)
    shorter = kernel.usual + [0, math.log(0.06), 0]
    starts = [kernel.usual, shorter]
    ends = [GaussianProcess(kernel, points, values, [start], 8).theta for start in starts]
    scaled = (values - values.mean()) / values.std()

    def losses(rows):
        features = kernel.features(points[rows])
        return [kernel.loss(end, points[rows], scaled[rows], features) for end in ends]

    few = np.unique(np.linspace(0, 59, 8).astype(int))
    assert np.argmin(losses(few)) == 0 and np.argmin(losses(np.arange(60))) == 1
    process = GaussianProcess(kernel, points, values, starts, 8)
    np.testing.assert_array_equal(process.theta, ends[1])


def test_the_gradient_of_the_mean_is_that_of_differences():
    points = points_in_box(30)
    process = GaussianProcess(make_kernel(1, 1, CURVES), points, bowl(points))
    at = np.array([0.3, -0.2])
    mean, gradient = process.mean_and_gradient(at[np.newaxis])
    assert mean[0] == pytest.approx(process.mean(at[np.newaxis])[0])
    expected = differences(lambda point: process.mean(point[np.newaxis])[0], at)
    # The curve counts as fixed, so only the gradient by the action is whole.
    assert gradient[0, 0] == pytest.approx(expected[0], abs=1e-4)


def test_noise_is_found_and_can_be_said():
    points = points_in_box(120)
    values = bowl(points) + np.random.default_rng(1).normal(0, 0.1, 120)
    # The narrow term may take a part of it for ripples.
    assert 0.03 < GaussianProcess(make_kernel(1, 1, CURVES), points, values).noise < 0.15
    said = GaussianProcess(make_kernel(1, 1, CURVES, noise=0.5), points, values)
    assert said.noise == pytest.approx(0.5 * values.std(), rel=1e-3)


def test_draws_agree_with_what_is_known():
    points = points_in_box(40)
    process = GaussianProcess(make_kernel(1, 1, CURVES), points, bowl(points))
    drawn = process.sample(points, np.random.default_rng(0))
    np.testing.assert_allclose(drawn, bowl(points), atol=0.02)
