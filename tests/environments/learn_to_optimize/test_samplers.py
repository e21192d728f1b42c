from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.errors import UserError
from environments.learn_to_optimize.samplers import (
    NAMES,
    LatinHypercube,
    make_samplers,
    uncertainty,
)


def entropy_by_first(observations: np.ndarray) -> np.ndarray:
    """Of a policy that is the less sure the larger the first coordinate is."""
    return observations[:, 0]


def small_samplers(name: str = "heterogeneous") -> list:
    return make_samplers(name, 3, num_strata=4, num_candidates=5, entropy_fn=entropy_by_first)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_heterogeneous_is_one_of_each():
    for name, part in zip(NAMES, small_samplers(), strict=False):
        (sampler,) = small_samplers(name)
        assert np.array_equal(sampler(generator(), 6), part(generator(), 6))


@settings(max_examples=30)
@given(st.lists(st.integers(0, 9), max_size=6), st.integers(0, 2**32))
def test_many_points_are_as_many_single_ones(counts, seed):
    for sampler in small_samplers():
        drawn = generator(seed)
        parts = [sampler(drawn, count) for count in counts]
        assert [part.shape for part in parts] == [(count, 3) for count in counts]
        stream = np.concatenate([np.empty((0, 3)), *parts])
        again = generator(seed)
        alone = [sampler(again, 1) for _ in range(len(stream))]
        assert np.array_equal(stream, np.array(alone).reshape(-1, 3))
        assert (np.abs(stream) <= 1).all()


@pytest.mark.parametrize("num_strata", [1, 2, 30])
def test_each_point_is_in_an_interval_that_holds_the_fewest(num_strata):
    """The printed line of eq. 5.2, point by point, over three hypercubes and a part of one."""
    points = LatinHypercube(3, num_strata)(generator(), 3 * num_strata + num_strata // 2)
    intervals = np.floor((points + 1) / 2 * num_strata).astype(int)
    for column in intervals.T:
        counts = [0] * num_strata
        for interval in column:
            assert counts[interval] == min(counts)
            counts[interval] += 1


def test_uncertainty_by_hand():
    """Eq. 5.3, for a policy whose action is normal around anything with standard deviation |c|.

    H = log(|c| sqrt(2 π e)) = 1.419 + log |c|. Of the first three candidates c is 0.5, -0.9 and
    0.1: H is 0.726, 1.314 and -0.884. Of the others 0.2, 0.2 and -0.1: twice -0.190, and -0.884.
    """
    drawn = np.array([[[0.3, 0.5], [-0.7, -0.9], [1, 0.1]], [[0.4, 0.2], [-0.4, 0.2], [0.9, -0.1]]])

    class Drawn:
        def uniform(self, low, high, shape):
            assert (low, high, shape) == (-1, 1, (2, 3, 2))
            return drawn

    def entropy(rows):
        return np.log(np.abs(rows[:, 1]) * np.sqrt(2 * np.pi * np.e))

    assert uncertainty(2, entropy, 3)(Drawn(), 2).tolist() == [[-0.7, -0.9], [0.4, 0.2]]


@pytest.mark.parametrize(
    "entropy_fn, description",
    [
        (lambda rows: np.full(len(rows), np.nan), r"shape \(12,\) with 12 not finite"),
        (lambda rows: rows, r"shape \(12, 2\)"),
        (lambda rows: np.mean(rows), r"shape \(\)"),
    ],
)
def test_what_are_no_entropies(entropy_fn, description):
    message = f"entropy_fn: expected 12 finite numbers, found {description}"
    with pytest.raises(ValueError, match=message):
        uncertainty(2, entropy_fn, num_candidates=3)(generator(), 4)


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        ("sobol", {}, "expected one of random, latin_hypercube, .*, found 'sobol'"),
        ("uncertainty", {}, "the policy's entropy function, found none"),
        ("heterogeneous", {}, "the policy's entropy function, found none"),
        ("latin_hypercube", {"num_strata": 0}, "num_strata: expected 1 or more, found 0"),
        (
            "uncertainty",
            {"num_candidates": 0, "entropy_fn": entropy_by_first},
            "num_candidates: expected 1 or more, found 0",
        ),
    ],
)
def test_what_cannot_be_made(name, arguments, message):
    with pytest.raises(UserError, match=message):
        make_samplers(name, 2, **arguments)
