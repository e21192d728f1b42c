"""Nodes with random attributes are refused in one line, or right."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs.operators import table
from environments.tensor_graphs.operators.operator import OperatorError
from tests.environments.tensor_graphs.operators import onnx_nodes
from tests.environments.tensor_graphs.operators.cases import ALL, Case, types_of


def changed(rng: np.random.Generator, value: object) -> object:
    """Draw another value of the same kind."""
    if isinstance(value, tuple):
        return tuple(changed(rng, item) if rng.random() < 0.4 else item for item in value)
    if isinstance(value, bool | int):
        return int(rng.integers(-2, 5))
    return value


def mutated(rng: np.random.Generator, case: Case) -> Case:
    """Change some sizes and attributes of a case."""
    inputs = []
    for spec in case.inputs:
        kind, shape = spec if spec and isinstance(spec[0], str) else ("float32", spec)
        shape = tuple(int(rng.integers(1, 6)) if rng.random() < 0.15 else n for n in shape)
        inputs.append((kind, shape))
    values = {**table.OPERATORS[case.op].attributes, **case.attributes}
    attributes = {
        name: changed(rng, value) if rng.random() < 0.4 else value for name, value in values.items()
    }
    return Case(case.op, tuple(inputs), attributes)


@pytest.mark.parametrize("op", sorted(table.OPERATORS))
def test_random_nodes(op):
    rng = np.random.default_rng(sum(map(ord, op)))
    cases = [case for case in ALL if case.op == op]
    for trial in range(60):
        case = mutated(rng, cases[trial % len(cases)])
        arrays = case.arrays(trial)
        types = types_of(arrays)
        try:
            attributes = table.complete(op, case.attributes, types)
            expected = table.infer(op, types, attributes)
        except OperatorError as error:
            assert str(error).startswith(f"{op}: ")
            assert "\n" not in str(error)
            continue
        if op == "Gather" and arrays[0].shape[dict(attributes)["axis"]] < 3:
            continue
        outputs = table.evaluate(op, arrays, attributes)
        assert types_of(list(outputs)) == expected, case


ODD = ["Conv", "ConvTranspose", "MaxPool", "AveragePool", "Slice", "Pad", "Gemm", "Split"]


@pytest.mark.parametrize("op", ODD)
def test_random_nodes_are_onnx(op):
    rng = np.random.default_rng(11)
    cases = [case for case in ALL if case.op == op]
    done = 0
    for trial in range(400):
        case = mutated(rng, cases[trial % len(cases)])
        arrays = case.arrays(trial)
        types = types_of(arrays)
        try:
            attributes = table.complete(op, case.attributes, types)
            table.infer(op, types, attributes)
        except OperatorError:
            continue
        outputs = table.evaluate(op, arrays, attributes)
        for mine, theirs in zip(
            outputs, onnx_nodes.run(op, arrays, attributes, len(outputs)), strict=True
        ):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5, err_msg=str(case))
        done += 1
        if done == 15:
            return
    assert done > 5
