"""Runs of a broadcast, worked by hand from shapes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.tensor_graphs.search.broadcasting import num_runs


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        pytest.param((2, 3, 4), (2, 3, 4), 1, id="of one shape"),
        pytest.param((2, 3, 4), (), 1, id="one number"),
        pytest.param((2, 3, 4), (1, 1), 1, id="one number with axes"),
        pytest.param((2, 3, 4), (4,), 6, id="a row for each of 2 · 3"),
        pytest.param((2, 3, 4), (3, 4), 2, id="two rows that lie behind each other"),
        pytest.param((2, 3, 4, 5), (3, 1, 1), 6, id="a number for each channel of a batch of 2"),
        pytest.param((2, 3, 4), (2, 3, 1), 6, id="a number for each row"),
        pytest.param((5, 1), (1, 7), 5, id="both are repeated"),
        pytest.param((2, 3, 1), (1, 1, 1), 1, id="a last axis of 1 says nothing"),
        pytest.param((2, 3, 1), (1,), 6, id="but where there is no other, it ends the run"),
        pytest.param((2, 3, 1), (), 6, id="and so for one number"),
        pytest.param((2, 3, 1), (3, 1), 2, id="another axis is there, which says more"),
        pytest.param((0, 3), (3,), 1, id="there is nothing to compute"),
    ],
)
def test_runs(first, second, count):
    assert num_runs(first, second) == num_runs(second, first) == count


@given(st.lists(st.integers(0, 3), max_size=4), st.integers(0, 4), st.sets(st.integers(0, 3)))
def test_whatever_is_broadcast_is_computed_in_whole_runs(shape, num_left_out, ones):
    """The other operand lacks the first axes, and has 1 in some of the others."""
    second = [1 if axis in ones else size for axis, size in enumerate(shape)][num_left_out:]
    count = num_runs(shape, second)
    assert count >= 1 and (0 in shape or math.prod(shape) % count == 0)
