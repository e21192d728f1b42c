"""What each rule contributed to a path."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.selection.contributions import contributions, segments_of, shares
from tests.environments.tensor_graphs.selection.fakes import compared, of_costs


def test_a_saving_is_the_difference_between_the_ends_of_a_segment():
    """A segment ends where another rule takes over; of a rule, all segments count."""
    visited = of_costs(("a", 9.0), ("a", 8.0), ("b", 8.5), ("a", 7.0))
    assert [len(segment) for segment in segments_of(visited)] == [2, 1, 1]
    a, b = contributions(visited)
    assert (a.rules, a.locations, a.estimated_saving_ms) == (("a",), ((0,), (1,), (3,)), 3.5)
    assert (b.rules, b.estimated_saving_ms, b.measured_saving) == (("b",), -0.5, None)
    measured = [compared(ratio, ratio, ratio) for ratio in (0.9, 0.95, 0.7)]
    a, b = contributions(visited, measured)
    assert [a.measured_saving, b.measured_saving] == pytest.approx([0.1 + 0.25, -0.05])
    assert b.is_slower and not a.is_slower
    assert contributions(of_costs()) == ()


def test_what_is_slower_is_shown_with_what_needs_it():
    """It was kept because the graph is slower without it: both together save 0.30 of 1."""
    visited = of_costs(("a", 9.0), ("b", 8.5), ("c", 8.0))
    measured = [compared(ratio, ratio, ratio) for ratio in (0.65, 0.70, 0.69)]
    a, c = shares(contributions(visited, measured))
    assert (a.rules, c.rules) == (("a", "b"), ("c",)) and len(a.states) == 2
    assert a.measured_saving == pytest.approx(0.30) and c.measured_saving == pytest.approx(0.01)
    assert a.estimated_saving_ms == pytest.approx(1.5) and not a.is_slower


def test_what_is_slower_within_a_a_is_not_slower():
    """Rule b measured 0.05 slower, where a copy of the model may be found 0.06 slower."""
    visited = of_costs(("a", 9.0), ("b", 8.5))
    measured = [compared(0.9, 0.9, 0.9), compared(0.95, 0.95, 0.95, same=(0.98, 1.06))]
    _, b = contributions(visited, measured)
    assert b.margin == pytest.approx(0.06) and not b.is_slower


def test_rules_that_alternate_are_one_segment():
    """Of many segments, those that change the cost least are joined to a neighbour."""
    steps = [(name, 10 - 0.01 * k) for k in range(20) for name in ("a", "b")]
    visited = of_costs(*steps, ("c", 5.0))
    segments = segments_of(visited, max_segments=2)
    assert [len(segment) for segment in segments] == [40, 1]
    assert contributions(visited)[2].estimated_saving_ms == pytest.approx(9.81 - 5)
