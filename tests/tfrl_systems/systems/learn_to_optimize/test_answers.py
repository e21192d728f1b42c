"""What a model says of its answers: where it is unsure, the file for each c, and the picture."""

from __future__ import annotations

import numpy as np
import pytest

from environments.learn_to_optimize.functions import Objective, make_objective
from tfrl_systems.systems.learn_to_optimize.answers import Answers, Landscape


def test_answers_by_hand(tmp_path):
    """sphere's box is [-5.12, 5.12]: the row (0.5, -1) is x = 2.56, c = -5.12."""
    rows = np.array([[0.5, -1.0], [0.0, 1.0]])
    expected = np.array([1.0, 2.0]), np.array([0.1, 3.0])
    answers = Answers.of(make_objective("sphere"), rows, expected, spread=4.0)
    assert answers.is_unsure.tolist() == [False, True]
    assert "unsure at 1 of 2 c, most of all at x = (0), c = (5.12): expected 2 ± 6" in (
        answers.describe()
    )
    assert Answers.of(make_objective("sphere"), rows, expected, spread=100.0).describe() == ""
    answers.write(tmp_path / "answers.csv")
    lines = (tmp_path / "answers.csv").read_text().splitlines()
    assert lines == ["c0,x0,expected,std", "-5.12,2.56,1,0.1", "5.12,0,2,3"]


def objective(num_free):
    """x in [0, 4] twice, and c in [10, 20]; the model stands for the function."""
    sides = [(0.0, 4.0)] * 2 + [(10.0, 20.0)] * num_free
    low, high = np.array(sides).T
    return Objective("squares", 2 + num_free, num_free, lambda rows: rows[:, 0], low, high)


def expected(actions, contexts):
    """(x0 - c)² + x1², and a deviation that grows with c."""
    assert (actions[:, 1] == 0.5).all()  # the policy's answer
    return (actions[:, 0] - contexts[:, 0]) ** 2 + actions[:, 1] ** 2, 1 + contexts[:, 0]


def policy(contexts):
    """x0 = c, x1 = 1 / 2, in the box."""
    return np.stack([contexts[:, 0], np.full(len(contexts), 0.5)], axis=1)


def test_the_least_of_each_column_is_at_the_answer():
    landscape = Landscape.of(objective(1), policy, expected)
    assert (landscape.c[0], landscape.c[-1]) == (10, 20)
    assert (landscape.x[0], landscape.x[-1]) == (0, 4)
    # The box's c and x0 are equal, so x0 goes from 0 to 4 while c goes from 10 to 20.
    np.testing.assert_allclose(landscape.answers, 0.4 * (landscape.c - 10), atol=1e-6)
    least = landscape.x[landscape.expected.argmin(axis=0)]
    np.testing.assert_allclose(least, landscape.answers, atol=4 / 59)
    assert landscape.expected.min() == pytest.approx(0.25)
    np.testing.assert_allclose(landscape.std[0], np.linspace(0, 2, 60), atol=1e-6)
    image = landscape.to_image()
    assert image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3
    assert len(np.unique(image.reshape(-1, 3), axis=0)) > 50
    assert Landscape.of(objective(0), policy, expected) is None, "there are no columns"
