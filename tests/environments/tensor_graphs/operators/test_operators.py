"""Every operator computes what onnxruntime does, with the types that are inferred."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs.operators import table
from tests.environments.tensor_graphs.operators import onnx_nodes
from tests.environments.tensor_graphs.operators.cases import ALL, Case, types_of


def test_there_is_a_case_of_every_operator():
    assert {case.op for case in ALL} == set(table.OPERATORS)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_values_and_types_are_onnx(case: Case):
    arrays = case.arrays()
    attributes = table.complete(case.op, case.attributes, types_of(arrays))
    types = table.infer(case.op, types_of(arrays), attributes)
    outputs = table.evaluate(case.op, arrays, attributes)
    assert types_of(outputs) == types
    expected = onnx_nodes.run(case.op, arrays, attributes, len(types))
    for mine, theirs in zip(outputs, expected, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)
