"""A search ends with its budget, tells its progress, and is resumed."""

from __future__ import annotations

import itertools

from environments.tensor_graphs.search import Budget, record, search
from tests.environments.tensor_graphs.search.fakes import LAYER, Costs, chain, start_of


def test_budgets():
    start = start_of(chain(*LAYER * 3))
    result = search(start, "taso", Budget(expansions=5))
    assert (result.expansions, result.stopped) == (5, "out of expansions")
    assert search(start, "taso", Budget(seconds=0)).stopped == "out of time"


def test_patience_ends_a_search_that_has_found_nothing(monkeypatch):
    """An hour passes with each look at the clock; a search that has found something goes on."""
    hours = itertools.count()
    monkeypatch.setattr(record.time, "monotonic", lambda: 3600.0 * next(hours))
    start = start_of(chain(*LAYER * 3))
    ended = search(start, "taso", Budget(patience_s=1.0))
    assert (ended.stopped, ended.expansions) == ("out of patience", 0)
    result = search(start_of(chain("Neg", "Neg", *LAYER)), "greedy", Budget(patience_s=2.5 * 3600))
    assert result.stopped == "exhausted" and result.seconds > 2.5 * 3600


def test_ctrl_c_returns_the_best_so_far():
    class Interrupting(Costs):
        num_costs = 0

        def node_cost_ms(self, graph, number):
            self.num_costs += 1
            if self.num_costs == 60:
                raise KeyboardInterrupt
            return super().node_cost_ms(graph, number)

    start = start_of(chain(*LAYER * 3, "Tanh"), objective=Interrupting())
    result = search(start, "taso")
    assert result.stopped == "interrupted" and result.best.cost_ms < result.start_cost_ms


def test_a_search_goes_on_from_an_earlier_one():
    start = start_of(chain(*LAYER * 3, "Tanh"))
    reports = []
    half = search(start, "regions", Budget(expansions=8), on_progress=reports.append)
    assert half.stopped == "out of expansions"
    assert reports[-1].best_cost_ms == half.best.cost_ms
    assert reports[-1].expansions == half.expansions
    again = search(start, "regions", earlier=reports[-1])
    assert again.best.cost_ms == search(start, "regions").best.cost_ms
    assert again.path[: len(half.path)] == half.path
    assert again.expansions > half.expansions and again.expansions_of_best <= again.expansions
