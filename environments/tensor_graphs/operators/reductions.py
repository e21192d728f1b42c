"""Operators that reduce axes.

The canonical forms have one input. The axes are an attribute, always given, counted from the front
and ascending. A node that `noop_with_empty_axes` turns into the identity has no canonical form.

  ReduceL2, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum, ReduceSumSquare
                     axes, keepdims
  ArgMax, ArgMin     axis, keepdims; the first of equal elements wins (no `select_last_index`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.operators.operator import (
    REQUIRED,
    Operator,
    OperatorError,
    Shape,
    Values,
    checked_axis,
    float_dtype,
    flops_per_input,
    from_the_front,
    same_dtype,
)

Array = np.ndarray


def _shape(shape: Shape, axes: Sequence[int], keepdims: int) -> Shape:
    for axis in axes:
        checked_axis(axis, len(shape))
    if list(axes) != sorted(set(axes)):
        raise OperatorError(f"expected ascending axes, found {axes}")
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _sum_square(f: Any, x: Array, axes: Sequence[int], keepdims: bool) -> Array:
    return f.sum(f.multiply(x, x), axes, keepdims)


def _product(f: Any, x: Array, axes: Sequence[int], keepdims: bool) -> Array:
    """Multiply elements one by one, since algebras can multiply only two arrays at a time."""
    for axis in axes:
        parts = np.split(x, x.shape[axis], axis) if x.shape[axis] else []
        x = f.number(1, x) + np.zeros_like(
            np.take(x, [], axis).sum(axis, keepdims=True, dtype=x.dtype)
        )
        for part in parts:
            x = f.multiply(x, part)
    return x if keepdims else np.squeeze(x, tuple(axes))


def _reduction(
    name: str, meaning: Callable[..., Array], flops: int = 1, dtype_fn: Any = same_dtype
) -> Operator:
    return Operator(
        name, "x", _shape, lambda f, x, axes, keepdims: meaning(f, x, axes, bool(keepdims)),
        flops_per_input(flops),
        dtype_fn=dtype_fn, normalize_fn=_normalize_axes, axes=REQUIRED, keepdims=1,
    )  # fmt: skip


def _normalize_axes(attributes: Values, shapes: Sequence[Any]) -> None:
    rank = len(shapes[0])
    attributes["axes"] = tuple(sorted({from_the_front(axis, rank) for axis in attributes["axes"]}))


def _arg(name: str, function: Callable[..., Any]) -> Operator:
    def evaluate(f: Any, x: Array, axis: int, keepdims: int) -> Array:
        place = function(f.places(x), axis=axis).astype(np.int64)
        return np.expand_dims(place, axis) if keepdims else place

    return Operator(
        name, "x", lambda shape, axis, keepdims: _shape(shape, (axis,), keepdims), evaluate,
        flops_per_input(1),
        dtype_fn=lambda dtype, **_: "int64", axis=0, keepdims=1,
    )  # fmt: skip


OPERATORS = [
    _reduction("ReduceMean", lambda f, x, axes, keep: f.mean(x, axes, keep)),
    _reduction("ReduceSum", lambda f, x, axes, keep: f.sum(x, axes, keep)),
    _reduction("ReduceMax", lambda f, x, axes, keep: f.max(x, axes, keep)),
    _reduction("ReduceMin", lambda f, x, axes, keep: f.min(x, axes, keep)),
    _reduction("ReduceProd", _product),
    _reduction("ReduceSumSquare", _sum_square, 2),
    _reduction("ReduceL2", lambda f, *args: f.apply("Sqrt", _sum_square(f, *args)), 2, float_dtype),
    _arg("ArgMax", np.argmax),
    _arg("ArgMin", np.argmin),
]
