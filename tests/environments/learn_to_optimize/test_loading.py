"""The user's own function and each of its faults, with modules on disk."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from environments.errors import UserError
from environments.learn_to_optimize.functions import make_objective
from environments.learn_to_optimize.loading import read_bounds, to_domain


def make(write, body: str, dimensions: int = 2, free: int = 1, bounds=(0, 10)):
    """An objective whose function has this body, a function of `points`."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    name = write(f"import numpy as np\ndef cost(points):\n{lines}\n")
    return make_objective(f"{name}:cost", dimensions, free, bounds)


def fault(objective, rows) -> str:
    with pytest.raises(UserError) as caught:
        objective(np.array(rows, np.float64))
    message = str(caught.value)
    assert "\n" not in message
    return message.partition(": ")[2]


def test_its_bounds_may_be_its_attribute(write):
    name = write(
        """
        def cost(points):
            return points.sum(axis=1)
        cost.bounds = (-1, [1, 2, 9])
        """
    )
    objective = make_objective(f"{name}:cost", 3, 1)
    assert objective(np.array([[1, 1, 1], [-1, -1, -1]])).tolist() == [12, -3]
    assert objective.describe(np.array([1, 1, 1])) == "x = (1, 2), c = (9)"
    given_instead = make_objective(f"{name}:cost", 3, 1, (0, 1))
    assert given_instead(np.ones((1, 3))).tolist() == [3]


def test_what_it_does_to_its_points_and_values_stays_with_it(write):
    """A function that changes its points, and returns the same array each time."""
    body = "kept = globals().setdefault('kept', np.zeros(1))\nkept[:] = points[:, 0]\n"
    objective = make(write, f"{body}points *= 0\nreturn kept")
    rows = np.zeros((1, 2))
    first = objective(rows)
    objective(np.ones((1, 2)))
    assert (first.tolist(), rows.tolist()) == ([5], [[0, 0]])


@pytest.mark.parametrize("num_rows", [1, 7])
def test_the_point_at_which_it_raises(write, num_rows):
    body = "if (points[:, 0] > 9).any():\n    raise RuntimeError('too\\nhot')\nreturn points[:, 0]"
    rows = np.zeros((num_rows, 2))
    rows[num_rows // 2] = [0.9, -0.5]
    assert fault(make(write, body), rows) == (
        "expected a value at x = (9.5), c = (2.5), found RuntimeError: too hot; correct the "
        "function there, or its bounds"
    )
    # An error that no single point causes is told of the first.
    body = "assert len(points) < 4, len(points)\nreturn points[:, 0]"
    message = fault(make(write, body), np.zeros((6, 2)))
    assert message.startswith("expected a value at x = (5), c = (5), found AssertionError: 6")


@pytest.mark.parametrize("value", ["np.nan", "np.inf", "-np.inf"])
def test_the_point_without_a_finite_value(write, value):
    objective = make(write, f"return np.where(points[:, 1] == 7.5, {value}, 1)", 3, 2)
    message = fault(objective, [[0, 0, 0], [0.1, 0.5, 1], [0, 0, 0]])
    shown = value.removeprefix("np.").replace("-np.", "-")
    assert message.startswith(
        f"expected a finite value at x = (5.5), c = (7.5, 10), found {shown}; "
    )


@pytest.mark.parametrize(
    "body, values",
    [
        # Finite values may have squares that overflow.
        ("return np.full(len(points), 1e300)", [1e300, 1e300]),
        ("return [int(value) for value in points[:, 0]]", [5, 10]),
    ],
)
def test_large_values_whole_numbers_and_lists_are_numbers(write, body, values):
    answer = make(write, body)(np.array([[0, 0], [1, 0]]))
    assert answer.dtype == np.float64 and answer.tolist() == values


@pytest.mark.parametrize(
    "body, description",
    [
        ("return points[:, :1]", "shape (3, 1)"),
        ("return None", "NoneType"),
        ("return ['a', 'b', 'c']", "list of <U1"),
        ("return [[1], [2, 3], 4]", "a list of unequal parts"),
        ("return points[:, 0] * 1j", "ndarray of complex128"),
    ],
)
def test_another_shape_or_type(write, body, description):
    message = fault(make(write, body), [[0.2, 1], [0, 0], [0, 0]])
    assert message == (
        "expected 3 numbers, shape (3,), for points (3, 2) beginning with x = (6), c = (10), "
        f"found {description}; return one value for each row"
    )


@pytest.mark.parametrize(
    "text, name, message",
    [
        ("", "no_such.inner:cost", "expected a module no_such.inner on .* directory of no_such.py"),
        ("import no_such_library", "{}:cost", "all that .* imports, found no no_such_library"),
        ("def cost(:", "{}:cost", "expected to import .*, found SyntaxError: "),
        ("import sys\nsys.exit(0)", "{}:cost", "expected to import .*, found SystemExit: 0"),
        ("def coast(): pass\n_x = 1", "{}:cost", "expected cost in .*py, found coast; correct"),
        ("", "{}:cost", "expected cost in .*py, found no callables"),
        ("cost = 3", "{}:cost", "expected a callable, found int"),
        ("", "{}.py:cost", "found '.*.py:cost'; name the module without .py"),
        ("", "some/{}:cost", "expected module:callable, such as mine:cost, found 'some/.*:cost'"),
        ("", ":cost", "expected module:callable"),
    ],
)
def test_what_cannot_be_loaded(write, text, name, message):
    with pytest.raises(UserError, match=message) as caught:
        make_objective(name.format(write(text)))
    assert "\n" not in str(caught.value)


def test_it_is_found_in_the_current_directory(tmp_path):
    """Also where Python itself does not look there (-P), as in the console script `tfrl`."""
    (tmp_path / "mine.py").write_text("def cost(points):\n    return points[:, 0]\n")
    code = (
        "import numpy as np\n"
        "from environments.learn_to_optimize.functions import make_objective\n"
        "print(make_objective('mine:cost')(np.array([[0.5, 0]])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[0.5]\n", done.stderr


edges = st.floats(-1e6, 1e6)


@given(edges, edges)
def test_the_corners_of_the_box_are_exactly_the_bounds(first, second):
    low, high = np.array([min(first, second)]), np.array([max(first, second)])
    assert to_domain(np.array([-1.0]), low, high) == low
    assert to_domain(np.array([1.0]), low, high) == high
    middle = to_domain(np.array([0.0]), low, high)
    assert low <= middle <= high


@pytest.mark.parametrize(
    "dimensions, bounds, low, high",
    [
        (3, (-1, 2), [-1, -1, -1], [2, 2, 2]),
        (3, (-1, [1, 2, 9]), [-1, -1, -1], [1, 2, 9]),
        (2, ([-5, -5], [5, 5]), [-5, -5], [5, 5]),
        (2, [(-5, 5), (0, 3)], [-5, 0], [5, 3]),
        (2, [(-5, 5), (-5, 5)], [-5, -5], [5, 5]),
        (3, [(-5, 5), (0, 3), (1, 2)], [-5, 0, 1], [5, 3, 2]),
        (2, np.array([[-5, 5], [0, 3]]), [-5, 0], [5, 3]),
        (2, optimize.Bounds([0, 2], [1, 3]), [0, 2], [1, 3]),
        (3, optimize.Bounds(0, 1), [0, 0, 0], [1, 1, 1]),
        (2, {"low": [0, 2], "high": [1, 3]}, [0, 2], [1, 3]),
    ],
)
def test_forms_of_bounds(dimensions, bounds, low, high):
    domain = read_bounds("f", dimensions, bounds)
    assert [side.tolist() for side in domain] == [low, high]


@pytest.mark.parametrize(
    "bounds",
    [
        *[(1, -1), (0, 0), (-1, np.inf), (np.nan, 1), 3, (1, 2, 3), ("low", "high"), None],
        *[([0, 0], [1, 1]), [(0, 1)] * 4, [(0, 1), (0, 1), (1, 0)], [(0, 1), (0, 1), (0,)]],
        *[{}, {"low": 0}, optimize.Bounds(1, 0), optimize.Bounds()],
    ],
)
def test_what_are_no_bounds_of_three_dimensions(bounds):
    with pytest.raises(UserError, match=r"f: expected bounds \(low, high\), each .* 3 of them"):
        read_bounds("f", 3, bounds)
    # From (0, 2) to (1, 3), or from 0 to 1 and from 2 to 3?
    with pytest.raises(UserError, match="may be .low, high. or two pairs; write scipy"):
        read_bounds("f", 2, [(0, 1), (2, 3)])
