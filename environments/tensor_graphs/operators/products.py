"""Products of matrices.

MatMul(a, b)       as in NumPy: axes before the last two are broadcast
Gemm(a, b[, c])    alpha · A·B + beta · c, where A = aᵀ if transA = 1 and B = bᵀ if transB = 1. All
                   attributes are always given; without c, beta is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.operators.elementwise import broadcast
from environments.tensor_graphs.operators.operator import (
    Operator,
    OperatorError,
    Shape,
    Values,
    num_elements,
)

Array = np.ndarray


def matmul_shape(a: Shape, b: Shape) -> Shape:
    """Return the shape of a product as NumPy's; raise OperatorError if there is none."""
    if not a or not b:
        raise OperatorError("expected matrices, found a scalar")
    rows = a[-2:-1]
    columns = b[-1:] if len(b) > 1 else ()
    if a[-1] != b[-2 if len(b) > 1 else 0]:
        raise OperatorError(f"expected matrices that can be multiplied, found {a} and {b}")
    return (*broadcast(a[:-2], b[:-2]), *rows, *columns)


def _gemm_shape(
    a: Shape, b: Shape, c: Shape | None = None, *, beta: float, transA: int, transB: int, **_: Any
) -> Shape:
    if len(a) != 2 or len(b) != 2:
        raise OperatorError(f"expected matrices, found {a} and {b}")
    rows, inner = reversed(a) if transA else a
    rows_of_b, columns = reversed(b) if transB else b
    if inner != rows_of_b:
        raise OperatorError(f"expected matrices that can be multiplied, found {a} and {b}")
    shape = (rows, columns)
    if c is not None:
        if broadcast(shape, c) != shape:
            raise OperatorError(f"expected what can be added to {shape}, found {c}")
    elif beta != 1:
        raise OperatorError("expected beta 1 where there is no c")
    return shape


def _gemm(
    f: Any, a: Array, b: Array, c: Array | None = None,
    *, alpha: float, beta: float, transA: int, transB: int,
) -> Array:  # fmt: skip
    result = f.matmul(a.T if transA else a, b.T if transB else b)
    if alpha != 1:
        result = f.multiply(result, f.number(alpha, a))
    if c is not None:
        result = f.add(result, f.multiply(c, f.number(beta, a)) if beta != 1 else c)
    return result


def flops_of_product(inputs: Sequence[Any], output: Any, attributes: Values) -> int:
    """Count two operations for each pair of factors, and one for what is added."""
    if inputs[0].shape is None:
        return 0
    inner = inputs[0].shape[-2 if attributes.get("transA") else -1]
    count = 2 * (inner if isinstance(inner, int) else 1) + (len(inputs) == 3)
    return count * num_elements(output)


OPERATORS = [
    Operator("MatMul", "a b", matmul_shape, lambda f, a, b: f.matmul(a, b), flops_of_product),
    Operator(
        "Gemm", "a b c?", _gemm_shape, _gemm, flops_of_product,
        alpha=1.0, beta=1.0, transA=0, transB=0,
    ),
]  # fmt: skip
