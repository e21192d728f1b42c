"""What a model says of its answers: where it is unsure and the file for each c."""

from __future__ import annotations

import numpy as np

from environments.learn_to_optimize.functions import make_objective
from tfrl_systems.systems.learn_to_optimize.answers import Answers


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
