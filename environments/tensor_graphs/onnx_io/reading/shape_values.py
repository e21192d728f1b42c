"""Compute the integers that a model derives from the sizes of its tensors.

Exporters write Reshape(x, Concat(Gather(Shape(x), 0), 12, 64)), which computes a shape when the
model runs. This module computes the shape while the model is read. Sizes that are not known yet
have names, so the value is an array of numbers and names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import Dimension, TensorType
from environments.tensor_graphs.operators import dimensions

MAX_ELEMENTS = 1024
"""Longer tensors are not lists of sizes and are not computed."""

INTEGERS = ("int32", "int64", "bool")
"""Element types of lists of sizes, and of what is computed with them."""

Sizes = np.ndarray
"""An array of dtype object, of any shape; each element is an int or the name of a size."""


def as_sizes(values: Any) -> Sizes:
    """Return values as an array of numbers and names."""
    array = np.asarray(values)
    return array.astype(object) if array.dtype.kind in "iub" else np.asarray(values, object)


def are_known(sizes: Sizes) -> bool:
    """Return whether all sizes are numbers."""
    return all(isinstance(size, int) for size in sizes.reshape(-1))


def compute(
    op: str,
    inputs: Sequence[Sizes | None],
    types: Sequence[TensorType | None],
    attributes: Mapping[str, Any],
) -> Sizes | None:
    """Compute the value of a node that computes with sizes; None if that is not possible.

    Inputs whose values or types are not known are None.
    """
    if op in ("Shape", "Size"):
        shape = types[0].shape if types and types[0] else None
        if shape is None:
            return None
        if op == "Size":
            return np.array(dimensions.product(shape), object)
        return as_sizes(list(shape))[attributes.get("start", 0) : attributes.get("end")]
    function = _FUNCTIONS.get(op)
    if function is None or not inputs or any(values is None for values in inputs):
        return None
    try:
        values = function(attributes, *inputs)
    except (ValueError, IndexError, TypeError, ZeroDivisionError):
        return None
    return values if values is not None and values.size <= MAX_ELEMENTS else None


def _each(function: Callable[..., Dimension], num_inputs: int = 2) -> Callable[..., Sizes]:
    elementwise = np.frompyfunc(function, num_inputs, 1)
    return lambda attributes, *inputs: np.asarray(elementwise(*inputs), object)


def _divided(dividend: Dimension, divisor: Dimension) -> Dimension:
    """Divide as ONNX divides integers, which drops the fraction; sizes are never negative."""
    if isinstance(dividend, int) and isinstance(divisor, int):
        return abs(dividend) // abs(divisor) * (1 if (dividend < 0) == (divisor < 0) else -1)
    if (
        isinstance(divisor, int)
        and divisor > 0
        and isinstance(dividend, str)
        and "-" not in dividend
    ):
        return dimensions.rounded_down(dividend, divisor)
    return dimensions.quotient(dividend, divisor)


def _equal(left: Dimension, right: Dimension) -> int:
    if isinstance(left, int) and isinstance(right, int) or left == right:
        return int(left == right)
    # A name stands for a size, which is not negative, so it differs from negative numbers.
    for name, number in ((left, right), (right, left)):
        if isinstance(name, str) and name.isidentifier() and isinstance(number, int) and number < 0:
            return 0
    raise ValueError(f"{left} may be {right}")


def _chosen(condition: Dimension, left: Dimension, right: Dimension) -> Dimension:
    if isinstance(condition, str):
        raise ValueError(condition)
    return left if condition else right


def _reshape(attributes: Mapping[str, Any], values: Sizes, shape: Sizes) -> Sizes:
    sizes = [int(size) for size in shape]
    return values.reshape(sizes) if 0 not in sizes else None  # type: ignore[return-value]


def _slice(attributes: Mapping[str, Any], values: Sizes, *lists: Sizes) -> Sizes:
    starts, ends, *rest = [[int(place) for place in places] for places in lists]
    axes = rest[0] if rest else list(range(len(starts)))
    steps = rest[1] if len(rest) > 1 else [1] * len(starts)
    places: list[slice] = [slice(None)] * values.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 1:
            raise ValueError("backwards")
        places[axis] = slice(start, end, step)
    return values[tuple(places)]


def _constant_of_shape(attributes: Mapping[str, Any], shape: Sizes) -> Sizes | None:
    value = attributes.get("value")
    filling = 0 if value is None else value.item()
    if not isinstance(filling, int):
        return None
    sizes = [int(size) for size in shape]
    if np.prod(sizes) > MAX_ELEMENTS:
        return None
    return np.full(sizes, filling, object)


def _product(attributes: Mapping[str, Any], values: Sizes, axes: Sizes | None = None) -> Sizes:
    if axes is not None or "axes" in attributes or values.ndim != 1:
        raise ValueError("only over all axes")
    result = np.array(dimensions.product(values.tolist()), object)
    return result.reshape(1) if attributes.get("keepdims", 1) else result


_FUNCTIONS: Mapping[str, Callable[..., Sizes | None]] = {
    "Add": _each(lambda a, b: dimensions.total([a, b])),
    "Cast": lambda attributes, values: values,
    "Concat": lambda attributes, *inputs: np.concatenate(inputs, axis=attributes["axis"]),
    "ConstantOfShape": _constant_of_shape,
    "Div": _each(_divided),
    "Equal": _each(_equal),
    "Gather": lambda attributes, values, indices: np.asarray(
        np.take(values, indices.astype(np.int64), axis=attributes.get("axis", 0)), object
    ),
    "Identity": lambda attributes, values: values,
    "Mul": _each(lambda a, b: dimensions.product([a, b])),
    # One more than fits tells that the list is too long.
    "Range": lambda attributes, *bounds: as_sizes(
        np.array(range(*[int(bound.item()) for bound in bounds])[: MAX_ELEMENTS + 1], np.int64)
    ),
    "ReduceProd": _product,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": lambda attributes, values, axes=None: np.asarray(
        np.squeeze(values, None if axes is None else tuple(map(int, axes.flat))), object
    ),
    "Sub": _each(lambda a, b: dimensions.total([a, dimensions.product([-1, b])])),
    "Unsqueeze": lambda attributes, values, axes: np.expand_dims(
        values, tuple(map(int, axes.flat))
    ),
    "Where": _each(_chosen, 3),
}
