"""Operators keep their numbers, so policies that are saved today work when one is added."""

from __future__ import annotations

import numpy as np

from environments.tensor_graphs.observation import features, observation
from environments.tensor_graphs.operators import table
from environments.tensor_graphs.operators.numbers import NUMBERS

# What policies know that are saved today; it changes only with the features of nodes and edges.
NUM_KINDS, VOCABULARY = 83, "0f88659d96166129"


def test_numbers_stay_as_they_are():
    assert observation.vocabulary(NUM_KINDS) == VOCABULARY


def test_each_operator_has_a_number_of_its_own_and_none_was_left_out():
    assert table.OPERATORS.keys() <= NUMBERS.keys()
    assert sorted(NUMBERS.values()) == list(range(1, len(NUMBERS) + 1))


def test_a_policy_knows_the_numbers_below_a_new_one(monkeypatch):
    monkeypatch.setattr(features, "KINDS", (*features.KINDS, "Fancy"))
    assert observation.vocabulary(len(features.KINDS)) != VOCABULARY
    assert observation.is_understood(VOCABULARY)
    assert not observation.is_understood("0123456789abcdef")
    moved = np.roll(features.KINDS, 1).tolist()
    monkeypatch.setattr(features, "KINDS", tuple(moved))
    assert not observation.is_understood(VOCABULARY)
