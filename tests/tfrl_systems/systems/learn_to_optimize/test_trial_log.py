"""Trials in CSV files: what is read, what is refused in one line, and what a killed run leaves."""

from __future__ import annotations

import numpy as np
import pytest

from environments.errors import UserError
from tfrl_systems.policies.trials import Trials
from tfrl_systems.systems.learn_to_optimize import trial_log

GOOD = "note,c0,x1,x0,value\na,0,1,2,5\nb,10,-1,4,\nc,5,0,3,nan\nd,5,0.5,3,-1e3\n"


def written(tmp_path, text):
    path = tmp_path / "trials.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_columns_are_known_by_their_names(tmp_path):
    logged = trial_log.read(written(tmp_path, GOOD))
    np.testing.assert_array_equal(logged.points[0], [2, 1, 0])
    np.testing.assert_array_equal(logged.values, [5, np.nan, np.nan, -1000])
    assert logged.num_free == 1
    low, high = logged.sides("log", None)
    assert (low.tolist(), high.tolist()) == ([2, -1, 0], [4, 1, 10])
    np.testing.assert_array_equal(logged.scaled("log", low, high).points[1], [1, -1, 1])
    with pytest.raises(UserError, match="found row 2 outside"):
        logged.scaled("log", low + 0.5, high)


@pytest.mark.parametrize(
    "text, match",
    [
        ("", "expected a header"),
        ("x0,c0\n1,2\n", "expected a header x0, x1, …, c0, …, value, found 'x0,c0'"),
        ("x1,value\n1,2\n", "expected a header"),
        ("x0,value,value\n1,2,3\n", "expected a header"),
        ("x0,value\n1,2\noops,3\n", "column 1 of row 3, found 'oops'"),
        ("x0,value\n1,2\n4\n", "column 2 of row 3, found 'nothing'"),
        ("x0,value\n1,2\n,3\n", "expected numbers for x and c, found none in row 3"),
        ("x0,value\n1,2\n3,\n", "expected two trials with a value"),
        (b"x0,value\n\xff\xfe,1\n", "expected a CSV file of trials"),
        ('x0,value\n"1,2\n', "expected a CSV file of trials"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, text, match):
    with pytest.raises(UserError, match=match) as caught:
        trial_log.read(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_run_finds_its_trials_again_and_forgets_half_a_line(tmp_path):
    path = tmp_path / "trials.csv"
    low, high = np.array([-5.0, 0.0]), np.array([5.0, 3.0])
    points = np.array([[0.1, 0.7], [1 / 3, -0.2], [0.5, 0.5]])
    log = trial_log.RunLog(path, 1, low, high)
    assert log.values_at(points) == [[], [], []]
    log.append(Trials(points[:1], np.array([0.1 + 0.2])))
    log.append(Trials(points[1:2], np.array([np.nan])))
    with path.open("a") as file:
        file.write("2.5,2.2")
    again = trial_log.RunLog(path, 1, low, high)
    first, second, third = again.values_at(points)
    assert first == [0.1 + 0.2] and np.isnan(second).all() and third == []
    again.append(Trials(points[2:], np.array([7.0])))
    assert again.values_at(points)[2] == [7.0]
    lines = path.read_text().splitlines()
    assert lines[0] == "x0,c0,value" and len(lines) == 4
    # In the function's own units: 0.5 is 2.5 of [-5, 5], and 2.25 of [0, 3].
    assert lines[3] == "2.5,2.25,7.0"
    logged = trial_log.read(path)
    np.testing.assert_allclose(logged.scaled("run", low, high).points, points)
