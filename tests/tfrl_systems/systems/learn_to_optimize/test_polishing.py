"""A few evaluations make an answer better, and never worse."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from environments.errors import UserError
from tfrl_systems.systems.learn_to_optimize.optimizer_policy import OptimizerPolicy
from tfrl_systems.systems.learn_to_optimize.polishing import polish


class Counted:
    """A bowl around `centre`, or another function, that counts the rows it is asked for."""

    def __init__(self, centre, value_fn=None):
        self.centre, self.rows = np.asarray(centre), []
        self._value_fn = value_fn or (lambda x: float(np.sum((x - self.centre) ** 2)))

    def __call__(self, rows):
        self.rows.extend(rows.tolist())
        return np.array([self._value_fn(row[: len(self.centre)]) for row in rows])


def test_ten_evaluations_find_the_bottom_of_a_bowl():
    bowl = Counted([0.31, -0.42])
    x = polish(bowl, np.array([0.3, -0.4], np.float32), np.array([0.5]), 10)
    np.testing.assert_allclose(x, bowl.centre, atol=1e-6)
    # The free parameter comes along unchanged, and the first point is the answer itself.
    assert all(row[2] == 0.5 for row in bowl.rows)
    np.testing.assert_allclose(bowl.rows[0][:2], [0.3, -0.4], atol=1e-7)


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(
    start=st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=3),
    evaluations=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_it_is_never_worse_nor_asks_more_nor_leaves_the_box(start, evaluations, seed):
    centre = np.random.default_rng(seed).uniform(-2, 2, len(start))
    bowl = Counted(centre, lambda x: float(np.sum(np.abs(x - centre))))
    x = np.array(start)
    polished = polish(bowl, x, np.zeros(1), evaluations)
    assert 1 <= len(bowl.rows) <= evaluations
    assert np.all(np.abs(polished) <= 1)
    assert np.all(np.abs([row[:-1] for row in bowl.rows]) <= 1)
    assert np.abs(polished - centre).sum() <= np.abs(x - centre).sum()


@pytest.mark.parametrize("evaluations", [1, 4, 12])
def test_values_that_are_no_numbers_are_passed_by(evaluations):
    hole = Counted([0.0], lambda x: float("nan") if x[0] > 0.105 else float(x[0] ** 2))
    x = polish(hole, np.array([0.1]), np.zeros(1), evaluations)
    assert x[0] <= 0.1


def test_a_policy_polishes_each_answer_with_the_function():
    class Constant:
        num_inputs = 3

        def mode(self, points):
            return np.full((len(points), 2), 0.25, np.float32)

    bowl = Counted([0.2, 0.3])
    policy = OptimizerPolicy(Constant(), 2, polish=10, function=bowl)
    np.testing.assert_allclose(policy([[0.1], [0.7]]), [bowl.centre] * 2, atol=1e-5)
    assert {row[2] for row in bowl.rows} == {np.float32(0.1), np.float32(0.7)}
    for wrong in ({"polish": 3}, {"function": bowl}, {"polish": -1, "function": bowl}):
        with pytest.raises(UserError, match="expected polish from 1 on together with a function"):
            OptimizerPolicy(Constant(), 2, **wrong)
