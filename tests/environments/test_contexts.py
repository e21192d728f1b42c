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
    sampler = contexts.uniform("abcd")
    assert draw(sampler, 50) == draw(sampler, 50) != draw(sampler, 50, seed=1)


def test_sequential_begins_again():
    assert draw(contexts.sequential("abc"), 7) == list("abcabca")


def test_named_contexts_are_drawn_and_found():
    sampler = contexts.Named({"first": "a", "second": "b"})
    assert draw(sampler, 50) == draw(contexts.uniform("ab"), 50)
    assert contexts.find(sampler, "second") == "b"
    with pytest.raises(UserError, match="2 contexts, found 'secnod'; similar: second"):
        contexts.find(sampler, "secnod")
    with pytest.raises(UserError, match="the sampler knows no names"):
        contexts.find(contexts.uniform("ab"), "first")


@pytest.mark.parametrize("make", [contexts.uniform, contexts.sequential])
def test_no_contexts(make):
    with pytest.raises(UserError, match="found none; add some"):
        make([])
