"""Runs of a broadcast, worked by hand from shapes."""

from __future__ import annotations

import pytest

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
    ],
)
def test_runs(first, second, count):
    assert num_runs(first, second) == num_runs(second, first) == count
