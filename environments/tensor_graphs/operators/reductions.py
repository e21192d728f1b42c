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
    normalize_axes,
    normalize_axis,
    same_dtype,
)

Array = np.ndarray


def _reduced(shape: Shape, axes: Sequence[int], keepdims: int) -> Shape:
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _shape(shapes: Sequence[Shape], attributes: Values) -> tuple[Shape]:
    shape, axes = shapes[0], attributes["axes"]
    for axis in axes:
        checked_axis(axis, len(shape))
    if list(axes) != sorted(set(axes)):
        raise OperatorError(f"expected ascending axes, found {axes}")
    return (_reduced(shape, axes, attributes["keepdims"]),)


def _arg_shape(shapes: Sequence[Shape], attributes: Values) -> tuple[Shape]:
    axis = checked_axis(attributes["axis"], len(shapes[0]))
    return (_reduced(shapes[0], (axis,), attributes["keepdims"]),)


def _index(dtypes: Sequence[Any], attributes: Values) -> tuple[str]:
    return ("int64",)


def _sum_square(f: Any, x: Array, axes: Sequence[int], keepdims: bool) -> Array:
    return f.sum(f.multiply(x, x), axes, keepdims)


def _l2(f: Any, x: Array, axes: Sequence[int], keepdims: bool) -> Array:
    return f.apply("Sqrt", _sum_square(f, x, axes, keepdims))


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


def _reduction(name: str, meaning: Callable[..., Array], flops: int, dtypes: Any) -> Operator:
    def evaluate(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
        return (meaning(algebra, arrays[0], attributes["axes"], bool(attributes["keepdims"])),)

    return Operator(
        name=name,
        inputs=("x",),
        attributes={"axes": REQUIRED, "keepdims": 1},
        shapes_fn=_shape,
        dtypes_fn=dtypes,
        evaluate_fn=evaluate,
        flops_fn=flops_per_input(flops),
        normalize_fn=normalize_axes,
    )


def _arg(name: str, method: str) -> Operator:
    def evaluate(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
        place = getattr(algebra, method)(arrays[0], attributes["axis"])
        return (np.expand_dims(place, attributes["axis"]) if attributes["keepdims"] else place,)

    return Operator(
        name=name,
        inputs=("x",),
        attributes={"axis": 0, "keepdims": 1},
        shapes_fn=_arg_shape,
        dtypes_fn=_index,
        evaluate_fn=evaluate,
        flops_fn=flops_per_input(1),
        normalize_fn=normalize_axis,
    )


OPERATORS = [
    _reduction("ReduceMean", lambda f, x, axes, keep: f.mean(x, axes, keep), 1, same_dtype),
    _reduction("ReduceSum", lambda f, x, axes, keep: f.sum(x, axes, keep), 1, same_dtype),
    _reduction("ReduceMax", lambda f, x, axes, keep: f.max(x, axes, keep), 1, same_dtype),
    _reduction("ReduceMin", lambda f, x, axes, keep: f.min(x, axes, keep), 1, same_dtype),
    _reduction("ReduceProd", _product, 1, same_dtype),
    _reduction("ReduceSumSquare", _sum_square, 2, same_dtype),
    _reduction("ReduceL2", _l2, 2, float_dtype),
    _arg("ArgMax", "argmax"),
    _arg("ArgMin", "argmin"),
]
