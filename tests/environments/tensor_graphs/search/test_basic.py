"""Greedy, TASO's and beam search, on systems whose optima are known by hand."""

from __future__ import annotations

import dataclasses

from environments.tensor_graphs.search import Step, search
from tests.environments.tensor_graphs.search.fakes import (
    HILL,
    LAYER,
    RULES,
    TableState,
    ToyState,
    chain,
)


def test_greedy_stays_on_its_side_of_the_hill():
    result = search(HILL, "greedy")
    assert (result.best.graph, result.path) == (1, (Step("down", (0,)),))
    assert (result.expansions, result.stopped) == (2, "exhausted")


def test_taso_goes_over_a_hill_of_alpha():
    """10.2 < 1.05 × 10 when the arrow over the hill is looked at before the one down."""
    over_first = dataclasses.replace(HILL, arrows={0: {"over": 3, "down": 1}, 3: {"down": 4}})
    result = search(over_first, "taso")
    assert result.path == (Step("over", (0,)), Step("down", (3,)))
    assert (result.best.cost_ms, result.expansions) == (5.0, 3)
    # As Algorithm 1 is printed: with a best of 9 known, 10.2 is too much.
    assert search(HILL, "taso").best.cost_ms == 9.0
    assert search(over_first, "taso", alpha=1.01).best.cost_ms == 9.0


def test_taso_counts_a_graph_once():
    circle = TableState(
        0, {0: {"a": 1, "b": 2}, 1: {"c": 0}, 2: {"d": 1}}, {0: 1.0, 1: 1.0, 2: 1.0}
    )
    result = search(circle, "taso")
    assert (result.expansions, result.stopped) == (2, "exhausted")


def test_taso_ends_after_its_budget_of_graphs():
    start = ToyState(chain(*LAYER * 3), RULES)
    few, many = (search(start, "taso", max_dequeued=number) for number in (1, 50))
    assert few.expansions == len(start.matches) < many.expansions


def test_beam_keeps_what_greedy_drops():
    assert search(HILL, "beam", width=2).best.cost_ms == 5.0
    assert search(HILL, "beam", width=1).best.cost_ms == 9.0
