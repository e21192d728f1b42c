"""A model computes the same after it was read and written."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from environments.errors import UserError
from environments.tensor_graphs import models
from environments.tensor_graphs.onnx_io import read, write
from tests.environments.tensor_graphs.onnx_io.running import (
    LIGHT_MODELS,
    equal,
    node_tests,
    random_inputs,
    run,
    with_constants,
)

# What the reference makes of numbers that do not fit is its own affair.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in cast")

# onnxruntime computes in float32 what is folded in float64.
FOLDED_TOLERANCE = 1e-6
STRIDE = 4
SMALL_MODELS = ("bert-tiny", "squeezenet-1.1")
LARGE_LIGHT_MODELS = ("alexnet", "densenet121", "inception_v2", "vgg19", "zfnet512")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            marks=pytest.mark.slow if path.stem.endswith(LARGE_LIGHT_MODELS) else (),
            id=path.stem,
        )
        for path in sorted(LIGHT_MODELS.glob("*.onnx"))
    ],
)
def test_light_models_of_the_wheel(path):
    model = onnx.load(path)
    written = write(read(path))
    onnx.checker.check_model(written, full_check=True)
    inputs = random_inputs(model)
    assert equal(run(model, inputs), run(written, inputs))


@pytest.mark.parametrize("name", SMALL_MODELS)
@pytest.mark.parametrize(("batch", "opset"), [("N", 14), (1, 17), ("N", 22)])
def test_our_models(name, batch, opset):
    model = models.make(name, batch=batch, opset=opset)
    graph = read(model)
    assert "Opaque" not in {node.op for node in graph.nodes.values()}
    written = write(graph)
    onnx.checker.check_model(written, full_check=True)
    again = read(written)  # All that is constant has been computed now.
    assert read(write(again)) == again
    inputs = _inputs_of(model)
    assert equal(run(model, inputs), run(written, inputs))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*models.NAMES} - {*SMALL_MODELS}))
@pytest.mark.parametrize("batch", [1, "N"])
def test_our_larger_models(name, batch):
    test_our_models(name, batch, opset=17)


@pytest.mark.parametrize(
    ("num_of_each", "num_equal"), [(3, 550), pytest.param(None, 1200, marks=pytest.mark.ci)]
)
def test_node_tests_of_onnx(num_of_each, num_equal):
    """The first few of each set of operators, or all."""
    cases = collections.defaultdict(list)
    for case in node_tests():
        cases[frozenset((node.domain, node.op_type) for node in case[1].graph.node)].append(case)
    outcomes = _round_trips([case for alike in cases.values() for case in alike[:num_of_each]])
    assert outcomes["equal"] >= num_equal
    assert set(outcomes) <= {"equal", "cannot run"}


@pytest.mark.parametrize(
    ("all_inputs", "stride"),
    [
        pytest.param(False, STRIDE),
        pytest.param(False, 1, marks=pytest.mark.slow),
        pytest.param(True, 1, marks=pytest.mark.slow),
    ],
)
def test_node_tests_with_known_inputs(all_inputs, stride):
    """Constant axes, shapes and bounds become attributes when read, and inputs when written.

    What they alone decide, such as the grid in the body of an AffineGrid, is folded in float64, and
    everything is if all inputs are constant.
    """
    is_fixed = (lambda place, value: True) if all_inputs else _is_list
    cases = [(name, *_fixed(model, inputs, is_fixed)) for name, model, inputs in node_tests()]
    with_weights = [case for case in cases if case[1].graph.initializer][::stride]
    outcomes = _round_trips(with_weights, 2e-5 if all_inputs else FOLDED_TOLERANCE)
    assert outcomes["equal"] >= (500 if stride == 1 else 100)
    assert set(outcomes) <= {"equal", "cannot run"}


def _inputs_of(model: onnx.ModelProto) -> dict[str, Any]:
    inputs = random_inputs(model)
    return {name: value % 2 if value.dtype == np.int64 else value for name, value in inputs.items()}


def _is_list(place: int, value: np.ndarray) -> bool:
    return place > 0 and (value.dtype.kind in "ib" or value.size == 1)


def _fixed(model: onnx.ModelProto, inputs: dict[str, Any], is_fixed: Any) -> tuple[Any, Any]:
    values = {
        name: value
        for place, (name, value) in enumerate(inputs.items())
        if isinstance(value, np.ndarray) and value.dtype.isbuiltin == 1
        if value.dtype.kind in "iubf" and is_fixed(place, value)
    }
    left = {name: value for name, value in inputs.items() if name not in values}
    return with_constants(model, values), left


def _round_trips(
    cases: list[tuple[str, onnx.ModelProto, dict[str, Any]]], tolerance: float = 0.0
) -> collections.Counter[str]:
    """Count the outcomes; those that should not be have the name of their case."""
    outcomes = ((name, _round_trip(model, inputs, tolerance)) for name, model, inputs in cases)
    return collections.Counter(
        outcome if outcome in ("equal", "cannot run") else f"{outcome}: {name}"
        for name, outcome in outcomes
    )


def _round_trip(model: onnx.ModelProto, inputs: dict[str, Any], tolerance: float) -> str:
    try:
        written = write(read(model))
    except UserError:
        try:
            run(model, inputs)
        except UserError:
            return "cannot run"
        return "refused"
    onnx.checker.check_model(written)
    again = read(written)
    if read(write(again)) != again:
        return "not the same when it is read again"
    for runner in (run, lambda model, inputs: ReferenceEvaluator(model).run(None, inputs)):
        try:
            expected = runner(model, inputs)
        except Exception:
            continue
        outputs = runner(written, inputs)
        is_equal = equal(expected, outputs) or _close(expected, outputs, tolerance)
        return "equal" if is_equal else "differ"
    return "cannot run"


def _close(expected: list[Any], outputs: list[Any], tolerance: float) -> bool:
    for value, output in zip(expected, outputs, strict=True):
        if (
            not isinstance(value, np.ndarray)
            or value.dtype.kind != "f"
            or value.shape != output.shape
        ):
            return False
        # onnxruntime computes float16 in float32 and rounds it at casts, of which some do nothing.
        allowed = max(tolerance, 1e-3) if value.dtype == np.float16 else tolerance
        if value.dtype != output.dtype or not np.allclose(value, output, allowed, allowed, True):
            return False
    return True
