"""Operators keep their numbers, so policies that are saved today work when one is added."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs.observation import features, observation
from environments.tensor_graphs.operators import numbers, table
from environments.tensor_graphs.operators.numbers import NUMBERS

# What policies know that are saved today; it changes only with the features of nodes and edges.
NUM_KINDS, VOCABULARY = 83, "0f88659d96166129"


def test_numbers_stay_as_they_are():
    assert observation.vocabulary(NUM_KINDS) == VOCABULARY


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "expected a number for Fancy; give it 93"),
        ({"Fancy": 92}, "expected each of the numbers 1 … 93 once"),
        ({"Fancy": 94}, "expected each of the numbers 1 … 93 once"),
    ],
)
def test_an_operator_needs_the_next_number(changes, message):
    with pytest.raises(ValueError, match=message):
        numbers.check([*table.OPERATORS, "Fancy"], NUMBERS | changes)
    numbers.check([*table.OPERATORS, "Fancy"], NUMBERS | {"Fancy": 93})
    numbers.check([], NUMBERS)  # An operator that goes leaves its number behind.


def test_a_policy_knows_the_numbers_below_a_new_one(monkeypatch):
    monkeypatch.setattr(features, "KINDS", (*features.KINDS, "Fancy"))
    assert observation.vocabulary(len(features.KINDS)) != VOCABULARY
    assert observation.is_understood(VOCABULARY)
    assert not observation.is_understood("0123456789abcdef")
    moved = np.roll(features.KINDS, 1).tolist()
    monkeypatch.setattr(features, "KINDS", tuple(moved))
    assert not observation.is_understood(VOCABULARY)
