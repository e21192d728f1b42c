from __future__ import annotations

import collections

import numpy as np
import pytest

from environments import contexts
from environments.errors import UserError


def draw(sampler, count: int, seed: int = 0) -> list:
    generator = np.random.default_rng(seed)
    return [sampler(generator) for _ in range(count)]


def test_uniform():
    counts = collections.Counter(draw(contexts.uniform("abcd"), 4000))
    assert set(counts) == set("abcd")
    assert all(900 < count < 1100 for count in counts.values())


def test_sequential_begins_again():
    assert draw(contexts.sequential("abc"), 7) == list("abcabca")


def test_weighted():
    counts = collections.Counter(draw(contexts.weighted("abc", [1, 0, 3]), 4000))
    assert set(counts) == {"a", "c"}
    assert counts["c"] / counts["a"] == pytest.approx(3, rel=0.15)


@pytest.mark.parametrize("sampler", [contexts.uniform("abcd"), contexts.weighted("ab", [1, 1])])
def test_the_generator_decides(sampler):
    assert draw(sampler, 50) == draw(sampler, 50) != draw(sampler, 50, seed=1)


@pytest.mark.parametrize("make", [contexts.uniform, contexts.sequential])
def test_no_contexts(make):
    with pytest.raises(UserError, match="found none; add some"):
        make([])


@pytest.mark.parametrize(
    "weights, message",
    [
        ([1], "expected 2 weights, one for each context, found 1"),
        ([1, -1], "finite weights of 0 or more .* found -1.0 to 1.0"),
        ([0, 0], "one above 0"),
        ([1, float("nan")], "expected finite"),
    ],
)
def test_wrong_weights(weights, message):
    with pytest.raises(UserError, match=message):
        contexts.weighted("ab", weights)
