"""A guide plays until its steps are hopeless."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.search import Budget
from environments.tensor_graphs.search.episodes import likeliest
from environments.tensor_graphs.search.record import BudgetSpent, Record
from tests.environments.tensor_graphs.search.fakes import Guide, TableState


def costs_met(costs, num_steps=100, budget=None):
    """Return the costs that a guide meets on a chain of graphs with these costs."""
    arrows = {number: {"on": number + 1} for number in range(len(costs) - 1)}
    record = Record("fake", TableState(0, arrows, dict(enumerate(costs))), budget or Budget())
    steps = likeliest(record, Guide("on", num_steps=num_steps), record.start, patience=20)
    return [after.cost_ms for _, after in steps]


def test_an_episode_is_given_up_when_it_is_hopeless():
    assert costs_met([10.0] * 40) == [10.0] * 20
    assert costs_met([10.0] * 5 + [9.0] * 35) == [10.0] * 4 + [9.0] * 21
    assert costs_met([10.0, 9.0, 9.4, 9.5, 1.0]) == [9.0, 9.4, 9.5]


def test_an_episode_that_ends_with_gains_goes_on():
    """Episodes of two steps; the third one begins where the second one ended, and gains nothing."""
    assert costs_met([10.0, 9.9, 9.8, 9.8, 9.7, 9.7, 9.7, 9.6], num_steps=2) == [
        *(9.9, 9.8),
        *(9.8, 9.7),
        *(9.7, 9.7),
    ]


def test_steps_of_an_episode_are_expansions():
    with pytest.raises(BudgetSpent, match="out of expansions"):
        costs_met([10.0 - number for number in range(9)], budget=Budget(expansions=4))
