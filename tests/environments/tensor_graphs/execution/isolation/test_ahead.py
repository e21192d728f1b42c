"""Outputs in float64 from another process are those that would be computed here."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from environments.errors import UserError
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.isolation.ahead import Ahead
from environments.tensor_graphs.execution.precise import Precise
from environments.tensor_graphs.execution.reference import Reference
from tests.environments.tensor_graphs.execution.models import parsed

THIRD = "g (float[n] x) => (float[n] y) <float three = {3}> { y = Div(x, three) }"
TRIALS = [{"x": np.float32([1, 2])}, {"x": np.float32([4])}]


def reference_of(model, exact_s=8.0):
    precise = Precise(onnx_io.read(model))
    return Reference(backend().open(model), precise, exact_s)


def test_they_are_those_of_this_process(tmp_path):
    """A third of 1 has other digits in float32 than in float64."""
    onnx.save(parsed(THIRD), tmp_path / "m.onnx")
    outputs, seconds = Ahead(tmp_path / "m.onnx", [], TRIALS, 8.0).collect()
    assert [values["y"].tolist() for values in outputs] == [[1 / 3, 2 / 3], [4 / 3]]
    assert seconds > 0


def test_inputs_that_fill_the_pipe_do_not_keep_the_caller_waiting():
    large = {"x": np.ones(10_000_000, np.float32)}
    (outputs,), _ = Ahead(parsed(THIRD), [], [large], 8.0).collect()
    assert outputs["y"].shape == (10_000_000,) and outputs["y"][-1] == 1 / 3


def test_a_reference_takes_them_where_the_first_is_needed(monkeypatch):
    reference = reference_of(parsed(THIRD))
    reference.expect(Ahead(parsed(THIRD), [], TRIALS, 8.0))
    monkeypatch.setattr(Precise, "run", lambda *_: pytest.fail("it is computed here"))
    assert [reference.exact(inputs)["y"][0] for inputs in TRIALS] == [1 / 3, 4 / 3]


def test_the_time_that_they_take_counts():
    """There is time for the first one alone, wherever it is computed."""
    reference = reference_of(parsed(THIRD), exact_s=0.0)
    reference.expect(Ahead(parsed(THIRD), [], TRIALS, 0.0))
    later = {"x": np.float32([7])}
    are_there = [reference.exact(inputs) is not None for inputs in (*TRIALS, later)]
    assert are_there == [True, False, False]


def test_where_the_process_fails_they_are_computed_here(tmp_path):
    ahead = Ahead(tmp_path / "gone.onnx", [], TRIALS, 8.0)
    reference = reference_of(parsed(THIRD))
    reference.expect(ahead)
    assert reference.exact(TRIALS[0])["y"].tolist() == [1 / 3, 2 / 3]
    with pytest.raises(UserError, match="no file"):
        Ahead(tmp_path / "gone.onnx", [], TRIALS, 8.0).collect()
