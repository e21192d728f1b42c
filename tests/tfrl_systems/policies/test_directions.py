"""Directions: noise that anyone can draw again, and hashes of what was tried."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfrl_systems.policies import variables
from tfrl_systems.policies.directions import Directions, Perturbation


def test_both_ends_are_as_far_from_the_middle_and_only_trained_variables_move():
    sources = [tf.Variable(value) for value in ([1.0, 2.0], [3], [[4.0]])]
    perturbation = Perturbation.of(sources, sources[::2], std=0.1).falling_to(0.001, iterations=3)
    data = variables.to_bytes(sources, 3)
    for iteration, std in ((0, 0.1), (1, 0.01), (2, 0.001)):
        seeds = (5, iteration, 7)
        ends = [perturbation.layout.read(perturbation.perturbed(data, seeds, s)) for s in (1, -1)]
        assert [version for version, _ in ends] == [3, 3]
        first, last = perturbation.noise(seeds)
        values = (values for _, values in ends)
        for variable, noise, plus, minus in zip(sources, (first, 0, last), *values, strict=True):
            np.testing.assert_allclose(plus, variable.numpy() + std * noise, atol=1e-6)
            np.testing.assert_allclose(minus, variable.numpy() - std * noise, atol=1e-6)


def test_what_is_collected_is_hashed():
    seeds, returns = np.array([[0, 1, 2]]), np.array([[1.0, np.nan]])
    expected = Directions(seeds, returns, 1, 1).sha256()
    assert Directions(seeds, returns.copy(), 1, 1).sha256() == expected
    assert Directions(seeds, returns[:, ::-1], 1, 1).sha256() != expected
    assert Directions(seeds + 1, returns, 1, 1).sha256() != expected
