"""Operators that index tensors or return their sizes.

Gather(x, indices)   axis; negative indices count from the end, as in ONNX
Shape(x)             start, end: both given, counted from the front
DepthToSpace(x)      blocksize, mode ("DCR" or "CRD")
SpaceToDepth(x)      blocksize
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.operators import dimensions
from environments.tensor_graphs.operators.operator import (
    REQUIRED,
    Operator,
    OperatorError,
    Shape,
    Values,
    checked_axis,
)

Array = np.ndarray


def _gather_shape(x: Shape, indices: Shape, axis: int) -> Shape:
    checked_axis(axis, len(x))
    return (*x[:axis], *indices, *x[axis + 1 :])


def _gather_dtype(x: str, indices: str, axis: int) -> str:
    if indices not in ("int32", "int64"):
        raise OperatorError(f"expected indices, found {indices}")
    return x


def _shape_shape(x: Shape, start: int, end: int) -> Shape:
    if not 0 <= start <= end <= len(x):
        raise OperatorError(f"expected places within {len(x)}, found {start} to {end}")
    return (end - start,)


def _normalize_shape(attributes: Values, shapes: Sequence[Shape]) -> None:
    rank = len(shapes[0])
    start, end, _ = slice(attributes["start"], attributes["end"]).indices(rank)
    attributes.update(start=start, end=max(start, end))


def _depth_to_space_shape(x: Shape, blocksize: int, mode: str) -> Shape:
    if mode not in ("DCR", "CRD"):
        raise OperatorError(f"expected mode DCR or CRD, found {mode}")
    if len(x) != 4:
        raise OperatorError(f"expected a tensor of rank 4, found {x}")
    height, width = (dimensions.product([size, blocksize]) for size in x[2:])
    return (x[0], _divided(x[1], blocksize**2), height, width)


def _space_to_depth_shape(x: Shape, blocksize: int) -> Shape:
    if len(x) != 4:
        raise OperatorError(f"expected a tensor of rank 4, found {x}")
    depth = dimensions.product([x[1], blocksize**2])
    return (x[0], depth, _divided(x[2], blocksize), _divided(x[3], blocksize))


def _divided(size: Any, divisor: int) -> Any:
    try:
        return dimensions.quotient(size, divisor)
    except ValueError as error:
        raise OperatorError(str(error)) from error


def _depth_to_space(f: Any, x: Array, blocksize: int, mode: str) -> Array:
    num, depth, height, width = x.shape
    channels = depth // blocksize**2
    if mode == "DCR":
        x = x.reshape(num, blocksize, blocksize, channels, height, width)
        x = x.transpose(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(num, channels, blocksize, blocksize, height, width)
        x = x.transpose(0, 1, 4, 2, 5, 3)
    return x.reshape(num, channels, height * blocksize, width * blocksize)


def _space_to_depth(f: Any, x: Array, blocksize: int) -> Array:
    num, depth, height, width = x.shape
    x = x.reshape(num, depth, height // blocksize, blocksize, width // blocksize, blocksize)
    x = x.transpose(0, 3, 5, 1, 2, 4)
    return x.reshape(num, depth * blocksize**2, height // blocksize, width // blocksize)


OPERATORS = [
    Operator(
        "Gather", "x indices", _gather_shape,
        lambda f, x, indices, axis: np.take(x, indices, axis=axis),
        dtype_fn=_gather_dtype, axis=0,
    ),
    Operator(
        "Shape", "x", _shape_shape, lambda f, x, start, end: np.array(x.shape[start:end], np.int64),
        dtype_fn=lambda dtype, **_: "int64", normalize_fn=_normalize_shape, start=0, end=2**63 - 1,
    ),
    Operator(
        "DepthToSpace", "x", _depth_to_space_shape, _depth_to_space, blocksize=REQUIRED, mode="DCR"
    ),
    Operator("SpaceToDepth", "x", _space_to_depth_shape, _space_to_depth, blocksize=REQUIRED),
]  # fmt: skip
