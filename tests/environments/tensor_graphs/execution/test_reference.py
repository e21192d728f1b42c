"""Digits that a candidate loses are told from those that the model itself loses."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.precise import Precise
from environments.tensor_graphs.execution.reference import Reference, excess, usual_error
from tests.environments.tensor_graphs.execution.models import parsed

ONES = np.ones((64, 3))


def off_by(error: float, exact: np.ndarray = ONES, dtype: str = "float32") -> np.ndarray:
    """Outputs, half of them too large by an error, and half too small."""
    side = np.where(np.arange(exact.size).reshape(exact.shape) % 2, error, -error)
    return (exact + side).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "own", "actual", "is_too_much"),
    [
        ("float32", 1e-5, 9e-5, False),
        ("float32", 1e-5, 2e-4, True),
        # Of an exact result some units in the last place may be lost: 1.2e-7 each.
        ("float32", 0.0, 5e-7, False),
        ("float32", 0.0, 1e-5, True),
        # A model that is not exact itself says nothing.
        ("float32", 0.5, 0.9, False),
        # 0.5% is nothing for a float16; a float32 of the float64 is much.
        ("float16", 0.0, 5e-3, False),
        ("float64", 0.0, 1e-15, False),
        ("float64", 0.0, 1e-8, True),
    ],
)
def test_an_error_is_judged_beside_that_of_the_model(dtype, own, actual, is_too_much):
    outputs = (off_by(error, ONES, dtype) for error in (own, actual))
    assert (excess(ONES, *outputs) > 1) == is_too_much


@pytest.mark.parametrize("axis", [0, 1])
def test_small_numbers_do_not_hide_behind_large_ones(axis):
    """One column, or row, of times in seconds; the other numbers lost four digits."""
    exact = np.random.default_rng(0).uniform(1, 2, (64, 64))
    exact[(slice(None), 0) if axis else 0] = 1.7e9
    own = exact.astype(np.float32)
    lost = np.where(exact > 1e9, own, own + np.float32(1e-3))
    assert np.abs(lost - exact).max() < 1e-7 * exact.max()
    assert excess(exact, own, own) < 1 < excess(exact, own, lost)


def test_an_error_may_be_small_by_chance():
    """Of ten outputs, one is exact in the model itself; that the candidate is not says nothing."""
    exact = np.linspace(1, 2, 10)[np.newaxis]
    own, actual = off_by(1e-5, exact), off_by(-3e-5, exact)
    own[0, 4] = exact[0, 4]
    assert excess(exact, own, actual) < 1
    # A single number is judged by what is usual.
    exact, own = np.ones((1, 1)), np.ones((1, 1), np.float32)
    actual = own + np.float32(1e-4)
    assert excess(exact, own, actual) > 1 > excess(exact, own, actual, usual=1e-4)


def test_what_is_not_finite_is_not_judged():
    exact = np.array([1.0, np.nan, np.inf, -np.inf])
    own = exact.astype(np.float32)
    assert excess(exact, own, own) == 0
    assert usual_error(exact[:1], own[:1] + np.float32(0.5)) == pytest.approx(0.5)


THIRD = "g (float[n] x) => (float[n] y) <float three = {3}> { y = Div(x, three) }"
TRIALS = [{"x": np.float32([1, 2])}, {"x": np.float32([4])}]


def reference_of(exact_s=8.0):
    model = parsed(THIRD)
    return Reference(backend().open(model), Precise(onnx_io.read(model)), exact_s)


def test_another_process_computes_what_the_first_use_takes(monkeypatch):
    """A third of 1 has other digits in float32 than in float64. Large inputs fill the pipe."""
    reference, large = reference_of(), {"x": np.ones(10_000_000, np.float32)}
    reference.compute_ahead(parsed(THIRD), [], [*TRIALS, large])
    monkeypatch.setattr(Precise, "run", lambda *_: pytest.fail("it is computed here"))
    assert [reference.exact(inputs)["y"][0] for inputs in TRIALS] == [1 / 3, 4 / 3]
    assert reference.exact(large)["y"].shape == (10_000_000,)


def test_the_time_that_it_takes_counts():
    """There is time for the first one alone, wherever it is computed."""
    reference = reference_of(exact_s=0.0)
    reference.compute_ahead(parsed(THIRD), [], TRIALS)
    later = {"x": np.float32([7])}
    are_there = [reference.exact(inputs) is not None for inputs in (*TRIALS, later)]
    assert are_there == [True, False, False]


def test_where_the_process_fails_it_is_computed_here(tmp_path):
    reference = reference_of()
    reference.compute_ahead(tmp_path / "gone.onnx", [], TRIALS)
    assert reference.exact(TRIALS[0])["y"].tolist() == [1 / 3, 2 / 3]
