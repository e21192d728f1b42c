from __future__ import annotations

import importlib
import io
import math
import sys

import numpy as np
import pytest

from environments.caches.cache import Cache
from environments.errors import UserError
from environments.learn_to_optimize import references, solvers
from environments.learn_to_optimize.functions import make_objective
from environments.learn_to_optimize.references import reference_points, truth
from tests.environments.caches.entries import contents, execute
from tests.environments.learn_to_optimize.test_solvers import searched


def errors(objective, x, free) -> references.Errors:
    """The errors of the x [M, n - k] that a policy chose for c [M, k]."""
    values = references.values_of(objective, x, free)
    return references.errors_of(objective, values, truth(objective, free).values)


GRID = [number / 10 for number in range(-10, 11)]


def test_reference_points_of_one_and_two_free_parameters():
    assert reference_points(1).ravel().tolist() == GRID
    pairs = reference_points(2)
    assert [tuple(pair) for pair in pairs] == [(first, second) for first in GRID for second in GRID]
    assert reference_points(0).shape == (1, 0)


@pytest.mark.parametrize("num_free, count", [(1, 5), (2, 440), (3, 1000), (20, 1000)])
def test_too_many_reference_points_are_sampled(num_free, count):
    points = reference_points(num_free, count)
    assert len({tuple(point) for point in points}) == len(points) == count
    assert set(points.ravel()) <= set(GRID)
    assert np.array_equal(points, reference_points(num_free, count))
    # Each coordinate takes all of its values, about equally often.
    if count == 1000:
        assert all(len(set(column)) == 21 for column in points.T)


COUNTING = """
    calls = 0
    def cost(points):
        global calls
        calls += 1
        return (points[:, 0] - points[:, 1] / 2) ** 2 + 3
"""


@pytest.fixture
def users_module(write):
    return write(COUNTING)


def count_calls(name: str, act) -> int:
    before = sys.modules[name].calls
    act()
    return sys.modules[name].calls - before


@pytest.fixture
def file(tmp_path):
    return tmp_path / "made" / "minima.db"


@pytest.fixture
def cache(file):
    return Cache(file, 1_000_000, 1)


def test_what_was_solved_is_kept_in_memory_and_on_disk(users_module, cache):
    c = reference_points(1)
    objective = make_objective(f"{users_module}:cost")
    first = truth(objective, c, cache)
    assert first.x == pytest.approx(c / 2, abs=1e-6) and first.values == pytest.approx(3)
    assert count_calls(users_module, lambda: truth(objective, c, cache)) == 0
    # Another objective of the same function, as in the next run: confirmed with a single call.
    another = make_objective(f"{users_module}:cost")
    assert count_calls(users_module, lambda: truth(another, c, cache)) == 1
    assert np.array_equal(truth(another, c, cache).x, first.x)
    with pytest.raises(ValueError, match="read-only"):
        first.x[0] = 0


def archive(**arrays) -> bytes:
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    return packed.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not an archive",
        archive(free=np.zeros((21, 1))),
        archive(free=reference_points(1), x=np.full((21, 1), np.nan), values=np.zeros(21)),
        # What the function does not confirm, as after a change in what its module imports.
        archive(free=reference_points(1), x=np.zeros((21, 1)), values=np.zeros(21)),
    ],
)
def test_what_is_out_of_date_is_solved_anew(users_module, cache, file, content):
    c = reference_points(1)
    first = truth(make_objective(f"{users_module}:cost"), c, cache)
    (whole,) = contents(file)
    ((key,),) = execute(file, "SELECT key FROM entries")
    cache.put(key, content)
    again = truth(make_objective(f"{users_module}:cost"), c, cache)
    assert np.array_equal(again.x, first.x) and np.array_equal(again.values, first.values)
    assert contents(file) == [whole]


def test_other_functions_points_and_sources_are_other_entries(users_module, cache, file, tmp_path):
    objective = make_objective(f"{users_module}:cost")
    truth(objective, reference_points(1), cache)
    truth(objective, reference_points(1)[:3], cache)
    bounded = make_objective(f"{users_module}:cost", bounds=(0, 1))
    truth(bounded, reference_points(1), cache)
    path = tmp_path / f"{users_module}.py"
    path.write_text(path.read_text() + "# changed\n")
    importlib.reload(sys.modules[users_module])
    changed = make_objective(f"{users_module}:cost")
    truth(changed, reference_points(1), cache)
    assert len(contents(file)) == 4
    everywhere = make_objective(f"{users_module}:cost", 2, 0)
    assert len({each.identity for each in (objective, bounded, changed, everywhere)}) == 4


def test_errors_by_hand():
    """Sphere with c = 0 and 1: the least values are 0 and 26.2144, at x = 0.

    x = 0.5 adds 6.5536 to the first; the second is exact.
    """
    measured = errors(make_objective("sphere"), np.array([[0.5], [0]]), np.array([[0.0], [1]]))
    assert measured.mse == pytest.approx(6.5536**2 / 2)
    assert measured.msle == pytest.approx(math.log(7.5536) ** 2 / 2)


def test_a_value_below_the_truth_counts_as_exact(monkeypatch):
    objective, c = searched("sphere"), np.array([[0.5]])
    monkeypatch.setattr(
        solvers, "minimise", lambda *_: (np.array([[0.1]]), objective(np.array([[0.1, 0.5]])))
    )
    assert errors(objective, np.zeros((1, 1)), c) == (0, 0)


def test_errors_of_what_is_no_answer():
    objective, c = make_objective("sphere"), np.array([[0.5]])
    with pytest.raises(UserError, match=r"found x = \(nan\), c = \(2.56\); whatever chose it"):
        errors(objective, np.array([[np.nan]]), c)
    with pytest.raises(ValueError, match=r"expected x \[1, 1\], found \(2, 1\)"):
        errors(objective, np.zeros((2, 1)), c)
    with pytest.raises(ValueError, match=r"expected c \[M, 1\], found \(21,\)"):
        truth(objective, np.array(GRID))


def test_errors_of_negative_values(write):
    """L is odd, so that a function may be negative: from -(e - 1) to 0 is one step of L."""
    name = write("def f(p):\n    return (2.718281828459045 - 1) * (p[:, 0] - 1) / 2")
    measured = errors(make_objective(f"{name}:f"), np.array([[1.0]]), np.array([[0.0]]))
    assert measured.msle == pytest.approx(1)
