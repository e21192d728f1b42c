"""What rules contributed to a way."""

from __future__ import annotations

import dataclasses

import pytest

from environments.tensor_graphs.accounting import parts_of, shares
from environments.tensor_graphs.search import Step, Visited


@dataclasses.dataclass(frozen=True)
class Costs:
    cost_ms: float


def way(*steps):
    """A way from cost 10, of (rule, cost afterwards)."""
    found = Visited(Costs(10.0))
    for number, (xfer, cost_ms) in enumerate(steps):
        found = Visited(Costs(cost_ms), found, Step(xfer, (number,)))
    return found


def test_parts_end_where_another_rule_takes_over():
    visited = way(("a", 9.0), ("a", 8.0), ("b", 8.5), ("a", 7.0))
    assert [len(part) for part in parts_of(visited)] == [2, 1, 1]
    a, b = shares(visited)
    assert (a.xfers, a.locations, a.estimated_ms) == (("a",), ((0,), (1,), (3,)), 3.5)
    assert (b.xfers, b.estimated_ms, b.measured) == (("b",), -0.5, None)


def test_what_was_measured_is_the_difference_of_two_ends():
    visited = way(("a", 9.0), ("a", 8.0), ("b", 8.5), ("a", 7.0))
    a, b = shares(visited, ratios=(0.9, 0.95, 0.7))
    assert a.measured == pytest.approx(0.1 + 0.25) and b.measured == pytest.approx(-0.05)
    assert a.measured + b.measured == pytest.approx(1 - 0.7)


def test_rules_in_turns_are_one_part():
    """Of many parts those that change least are joined to a neighbour."""
    steps = [(name, 10 - 0.01 * k) for k in range(20) for name in ("a", "b")]
    visited = way(*steps, ("c", 5.0))
    parts = parts_of(visited, most=2)
    assert [len(part) for part in parts] == [40, 1]
    assert shares(visited)[2].estimated_ms == pytest.approx(9.81 - 5)


def test_no_steps():
    assert shares(way()) == ()
