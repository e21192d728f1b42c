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
    no_flops,
    normalize_axis,
    same_dtype,
)

Array = np.ndarray


def _gather_shape(shapes: Sequence[Shape], attributes: Values) -> tuple[Shape]:
    x, indices = shapes
    axis = checked_axis(attributes["axis"], len(x))
    return ((*x[:axis], *indices, *x[axis + 1 :]),)


def _gather_dtype(dtypes: Sequence[Any], attributes: Values) -> tuple[str]:
    if dtypes[1] not in ("int32", "int64"):
        raise OperatorError(f"expected indices, found {dtypes[1]}")
    return (dtypes[0],)


def _gather(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
    return (np.take(arrays[0], arrays[1], axis=attributes["axis"]),)


def _shape_shape(shapes: Sequence[Shape], attributes: Values) -> tuple[Shape]:
    start, end, rank = attributes["start"], attributes["end"], len(shapes[0])
    if not 0 <= start <= end <= rank:
        raise OperatorError(f"expected places within {rank}, found {start} to {end}")
    return ((end - start,),)


def _normalize_shape(attributes: Values, shapes: Sequence[Shape]) -> None:
    rank = len(shapes[0])
    start, end, _ = slice(attributes["start"], attributes["end"]).indices(rank)
    attributes.update(start=start, end=max(start, end))


def _shape(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
    shape = arrays[0].shape[attributes["start"] : attributes["end"]]
    return (np.array(shape, np.int64),)


def _index(dtypes: Sequence[Any], attributes: Values) -> tuple[str]:
    return ("int64",)


def _depth_to_space_shape(shapes: Sequence[Shape], attributes: Values) -> tuple[Shape]:
    x, block = shapes[0], attributes["blocksize"]
    if attributes["mode"] not in ("DCR", "CRD"):
        raise OperatorError(f"expected mode DCR or CRD, found {attributes['mode']}")
    if len(x) != 4:
        raise OperatorError(f"expected a tensor of rank 4, found {x}")
    height, width = (dimensions.product([size, block]) for size in x[2:])
    return ((x[0], _divided(x[1], block * block), height, width),)


def _space_to_depth_shape(shapes: Sequence[Shape], attributes: Values) -> tuple[Shape]:
    x, block = shapes[0], attributes["blocksize"]
    if len(x) != 4:
        raise OperatorError(f"expected a tensor of rank 4, found {x}")
    depth = dimensions.product([x[1], block * block])
    return ((x[0], depth, _divided(x[2], block), _divided(x[3], block)),)


def _divided(size: Any, divisor: int) -> Any:
    try:
        return dimensions.quotient(size, divisor)
    except ValueError as error:
        raise OperatorError(str(error)) from error


def _depth_to_space(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
    block = attributes["blocksize"]
    num, depth, height, width = arrays[0].shape
    channels = depth // block**2
    if attributes["mode"] == "DCR":
        x = arrays[0].reshape(num, block, block, channels, height, width)
        x = x.transpose(0, 3, 4, 1, 5, 2)
    else:
        x = arrays[0].reshape(num, channels, block, block, height, width)
        x = x.transpose(0, 1, 4, 2, 5, 3)
    return (x.reshape(num, channels, height * block, width * block),)


def _space_to_depth(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
    block = attributes["blocksize"]
    num, depth, height, width = arrays[0].shape
    x = arrays[0].reshape(num, depth, height // block, block, width // block, block)
    x = x.transpose(0, 3, 5, 1, 2, 4)
    return (x.reshape(num, depth * block**2, height // block, width // block),)


def _operator(
    name: str, attributes: Values, shapes: Any, evaluate: Any, **options: Any
) -> Operator:
    return Operator(
        name=name,
        attributes=attributes,
        shapes_fn=shapes,
        evaluate_fn=evaluate,
        flops_fn=no_flops,
        **{"inputs": ("x",), "dtypes_fn": same_dtype, **options},
    )


_BLOCKS = {"blocksize": REQUIRED, "mode": "DCR"}

OPERATORS = [
    _operator(
        "Gather", {"axis": 0}, _gather_shape, _gather,
        inputs=("x", "indices"), dtypes_fn=_gather_dtype, normalize_fn=normalize_axis,
    ),
    _operator(
        "Shape", {"start": 0, "end": 2**63 - 1}, _shape_shape, _shape,
        dtypes_fn=_index, normalize_fn=_normalize_shape,
    ),
    _operator("DepthToSpace", _BLOCKS, _depth_to_space_shape, _depth_to_space),
    _operator("SpaceToDepth", {"blocksize": REQUIRED}, _space_to_depth_shape, _space_to_depth),
]  # fmt: skip
