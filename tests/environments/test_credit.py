"""What an action is worth beside the group's other episodes, worked by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from environments.credit import Credit, group_advantages


def test_an_action_answers_for_its_parts_alone():
    """Part f is worth -10, -4 and -1 in the three episodes, g is worth -5 in two, and h in one."""
    group = [
        Credit({"f": -10, "g": -5}, [{"f"}, {"f", "g"}, {"h"}]),
        Credit({"f": -4, "g": -5}, [{"g"}]),
        Credit({"f": -1, "h": -8}, [{"h", "f"}, set()]),
    ]
    first, second, third = group_advantages(group)
    f, g, h = -10 - (-4 - 1) / 2, -5 - (-5 + 0) / 2, 0 - (0 - 8) / 2
    assert first.tolist() == [f, f + g, h]
    assert second.tolist() == [-5 - (-5 + 0) / 2]
    assert third.tolist() == [(-8 - 0) + (-1 - (-10 - 4) / 2), 0]


def test_a_context_that_is_worth_more_to_all_changes_nothing():
    def advantages(offset):
        returns = [1.0 + offset, 2.0 + offset, 6.0 + offset]
        return group_advantages([Credit.of_return(value, 2) for value in returns])

    for at_0, at_1000 in zip(advantages(0), advantages(1000), strict=True):
        np.testing.assert_allclose(at_0, at_1000, atol=1e-9)
    assert [row.tolist() for row in advantages(0)] == [[-3.0] * 2, [-1.5] * 2, [4.5] * 2]


@given(st.permutations(["large", "small", "minus large"]))
def test_the_order_of_parts_does_not_change_a_bit(parts):
    """Sets of names have another order in each process, and experience must not."""
    values = {"large": 1e16, "small": 1.0, "minus large": -1e16}
    first, _ = group_advantages([Credit(values, [parts]), Credit({}, [])])
    assert first.tolist() == [1.0]


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8))
def test_the_advantages_of_a_group_cancel(returns):
    group = [Credit.of_return(value, 1) for value in returns]
    assert abs(np.sum(np.concatenate(group_advantages(group)))) < 1e-6
