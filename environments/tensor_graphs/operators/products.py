"""Products of matrices.

MatMul(a, b)       as in NumPy: axes before the last two are broadcast
Gemm(a, b[, c])    alpha · A·B + beta · c, where A = aᵀ if transA = 1 and B = bᵀ if transB = 1. All
                   attributes are always given; without c, beta is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import TensorType
from environments.tensor_graphs.operators.elementwise import broadcast
from environments.tensor_graphs.operators.operator import (
    Operator,
    OperatorError,
    Shape,
    Values,
    num_elements,
    same_dtype,
)


def _matmul_shape(shapes: Sequence[Shape], attributes: Values) -> tuple[Shape]:
    a, b = shapes
    if not a or not b:
        raise OperatorError("expected matrices, found a scalar")
    rows = a[-2:-1]
    columns = b[-1:] if len(b) > 1 else ()
    if a[-1] != b[-2 if len(b) > 1 else 0]:
        raise OperatorError(f"expected matrices that can be multiplied, found {a} and {b}")
    return ((*broadcast(a[:-2], b[:-2]), *rows, *columns),)


def _matmul(algebra: Any, arrays: Sequence[np.ndarray], attributes: Values) -> tuple[np.ndarray]:
    return (algebra.matmul(*arrays),)


def _matmul_flops(inputs: Sequence[Any], outputs: Sequence[TensorType], attributes: Values) -> int:
    if inputs[0].shape is None:
        return 0
    inner = inputs[0].shape[-1]
    return 2 * num_elements(outputs[0]) * (inner if isinstance(inner, int) else 1)


def _gemm_shape(shapes: Sequence[Shape], attributes: Values) -> tuple[Shape]:
    a, b = shapes[:2]
    if len(a) != 2 or len(b) != 2:
        raise OperatorError(f"expected matrices, found {a} and {b}")
    rows, inner = reversed(a) if attributes["transA"] else a
    rows_of_b, columns = reversed(b) if attributes["transB"] else b
    if inner != rows_of_b:
        raise OperatorError(f"expected matrices that can be multiplied, found {a} and {b}")
    shape = (rows, columns)
    if len(shapes) == 3:
        if broadcast(shape, shapes[2]) != shape:
            raise OperatorError(f"expected what can be added to {shape}, found {shapes[2]}")
    elif attributes["beta"] != 1:
        raise OperatorError("expected beta 1 where there is no c")
    return (shape,)


def _gemm(algebra: Any, arrays: Sequence[np.ndarray], attributes: Values) -> tuple[np.ndarray]:
    a, b = arrays[:2]
    a = a.T if attributes["transA"] else a
    b = b.T if attributes["transB"] else b
    result = algebra.matmul(a, b)
    if attributes["alpha"] != 1:
        result = algebra.multiply(result, algebra.number(attributes["alpha"], a))
    if len(arrays) == 3:
        c = arrays[2]
        if attributes["beta"] != 1:
            c = algebra.multiply(c, algebra.number(attributes["beta"], a))
        result = algebra.add(result, c)
    return (result,)


def _gemm_flops(inputs: Sequence[Any], outputs: Sequence[TensorType], attributes: Values) -> int:
    if inputs[0].shape is None:
        return 0
    inner = inputs[0].shape[0 if attributes["transA"] else 1]
    products = 2 * num_elements(outputs[0]) * (inner if isinstance(inner, int) else 1)
    return products + (num_elements(outputs[0]) if len(inputs) == 3 else 0)


OPERATORS = [
    Operator(
        name="MatMul",
        inputs=("a", "b"),
        attributes={},
        shapes_fn=_matmul_shape,
        dtypes_fn=same_dtype,
        evaluate_fn=_matmul,
        flops_fn=_matmul_flops,
    ),
    Operator(
        name="Gemm",
        inputs=("a", "b", "c?"),
        attributes={"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0},
        shapes_fn=_gemm_shape,
        dtypes_fn=same_dtype,
        evaluate_fn=_gemm,
        flops_fn=_gemm_flops,
    ),
]
