"""Operators that move elements without changing them, or return sizes.

In the canonical forms, constant lists are attributes and axes are counted from the front.

  Reshape(x)          shape: shape of the output as numbers and names, without ONNX's 0 and -1.
                      Flatten, Squeeze and Unsqueeze become Reshape: see `reshaped`.
  Transpose(x)        perm: always given
  Concat(*x)          axis
  Split(x)            axis, split: the sizes of the outputs
  Slice(x)            starts, ends, axes, steps: only axes that are cut, in ascending order;
                      0 <= start, step >= 1, and the end is one more than the last index that is
                      taken (equal to the start if none is). An axis of unknown size can only be cut
                      at its beginning: its end is WHOLE.
  Pad(x)              mode, pads (twice as many as the rank, none negative), value
  Expand(x)           shape: shape of the output
  Tile(x)             repeats
  Gather(x, indices)  axis; negative indices count from the end, as in ONNX
  DepthToSpace(x)     blocksize, mode ("DCR" or "CRD")
  SpaceToDepth(x)     blocksize
  Shape(x)            start, end: both given, counted from the front
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import Dimension
from environments.tensor_graphs.operators import dimensions
from environments.tensor_graphs.operators.elementwise import broadcast
from environments.tensor_graphs.operators.operator import (
    REQUIRED,
    Operator,
    OperatorError,
    Shape,
    Values,
    checked_axis,
    from_the_front,
)

Array = np.ndarray
WHOLE = 2**63 - 1
"""The end of a slice that reaches to the end of its axis."""


def reshaped(op: str, shape: Shape, attributes: Mapping[str, Any]) -> Shape:
    """Return the shape to which Flatten, Squeeze or Unsqueeze reshapes its input.

    The attribute is `axis` of Flatten, `axes` of the others; without it, Squeeze removes all sizes
    1.

    Raises:
      OperatorError: the attributes do not fit the shape.
    """
    rank = len(shape)
    if op == "Flatten":
        axis = attributes.get("axis", 1)
        axis = axis + rank if axis < 0 else axis
        if not 0 <= axis <= rank:
            raise OperatorError(f"Flatten: expected an axis in 0 … {rank}, found {axis}")
        return (dimensions.product(shape[:axis]), dimensions.product(shape[axis:]))
    axes = attributes.get("axes")
    if op == "Unsqueeze" and axes is not None:
        rank += len(axes)
        ones = {from_the_front(axis, rank) for axis in axes}
        if len(ones) < len(axes):
            raise OperatorError(f"Unsqueeze: expected different axes, found {axes}")
        left = iter(shape)
        return tuple(1 if axis in ones else next(left) for axis in range(rank))
    if op != "Squeeze":
        raise OperatorError(f"{op}: expected axes")
    if axes is None:
        axes = [axis for axis, size in enumerate(shape) if size == 1]
    taken = {from_the_front(axis, rank) for axis in axes}
    if any(shape[axis] != 1 for axis in taken):
        raise OperatorError(f"Squeeze: expected sizes 1 at {tuple(axes)}, found {shape}")
    return tuple(size for axis, size in enumerate(shape) if axis not in taken)


def reshape_request(shape: Shape, target: Shape) -> tuple[int, ...] | None:
    """Return the shape argument with which ONNX's Reshape makes one shape of another.

    Returns:
      Numbers, with 0 for a size that is copied and -1 for one that is computed. None if such
      numbers cannot express the target, because more than one unknown size is new, or because the
      target has unknown sizes and a size of 0. If the shapes differ only in sizes 1, Unsqueeze and
      Squeeze can express it.
    """
    if all(isinstance(size, int) for size in target):
        return tuple(target)  # type: ignore[arg-type]
    request: list[int] = []
    for place, size in enumerate(target):
        if isinstance(size, int):
            request.append(size)
        elif place < len(shape) and shape[place] == size:
            request.append(0)
        else:
            request.append(-1)
    return tuple(request) if request.count(-1) <= 1 and 0 not in target else None


def _reshape_shape(x: Shape, shape: Shape) -> Shape:
    if -1 in shape:
        raise OperatorError(f"expected known sizes or names, found {shape}")
    if dimensions.product(x) != dimensions.product(shape):
        raise OperatorError(f"expected as many elements as in {x}, found {shape}")
    if reshape_request(x, shape) is None and without_ones(x) != without_ones(shape):
        raise OperatorError(f"cannot write Reshape of {x} to {shape}")
    return shape


def without_ones(shape: Shape) -> list[Dimension]:
    """Return a shape's sizes that are not 1."""
    return [size for size in shape if size != 1]


def _normalize_reshape(attributes: Values, shapes: Sequence[Shape]) -> None:
    shape, target = shapes[0], list(attributes["shape"])
    for place, size in enumerate(target):
        if size == 0 and place < len(shape):
            target[place] = shape[place]
    if -1 in target:
        place = target.index(-1)
        others = dimensions.product([*target[:place], *target[place + 1 :]])
        target[place] = _divided(dimensions.product(shape), others)
    attributes["shape"] = tuple(target)


def _transpose_shape(x: Shape, perm: Sequence[int]) -> Shape:
    if sorted(perm) != list(range(len(x))):
        raise OperatorError(f"expected a permutation of {len(x)} axes, found {perm}")
    return tuple([x[axis] for axis in perm])


def _concat_shape(first: Shape, *others: Shape, axis: int) -> Shape:
    checked_axis(axis, len(first))
    for shape in others:
        same = shape[:axis] == first[:axis] and shape[axis + 1 :] == first[axis + 1 :]
        if len(shape) != len(first) or not same:
            raise OperatorError(f"expected shapes that differ at {axis}, found {first} and {shape}")
    size = dimensions.total([shape[axis] for shape in (first, *others)])
    return (*first[:axis], size, *first[axis + 1 :])


def _split_shape(x: Shape, axis: int, split: Sequence[int]) -> list[Shape]:
    checked_axis(axis, len(x))
    if not split or min(split) < 0 or dimensions.total(split) != x[axis]:
        raise OperatorError(f"expected sizes that sum to {x[axis]}, found {split}")
    return [(*x[:axis], size, *x[axis + 1 :]) for size in split]


def _slice_shape(
    x: Shape, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> Shape:
    sizes = list(x)
    if not len(starts) == len(ends) == len(axes) == len(steps) or list(axes) != sorted(set(axes)):
        raise OperatorError(f"expected numbers for ascending axes, found {starts} {ends} {axes}")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = sizes[checked_axis(axis, len(sizes))]
        if isinstance(size, str):
            if end != WHOLE or step != 1 or start <= 0:
                raise OperatorError(f"cannot tell what is left of {size} between {start} and {end}")
            sizes[axis] = dimensions.total([size, -start])
        elif not 0 <= start <= end <= size or (max(end - 1 - start, 0)) % step:
            raise OperatorError(f"expected places within {size}, found {start} to {end} by {step}")
        else:
            sizes[axis] = -((start - end) // step)
    return tuple(sizes)


_SLICE = ("starts", "ends", "axes", "steps")


def _normalize_slice(attributes: Values, shapes: Sequence[Shape]) -> None:
    shape = shapes[0]
    starts, ends, axes, steps = (attributes[name] for name in _SLICE)
    axes = range(len(starts)) if axes == () else axes
    steps = (1,) * len(starts) if steps == () else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise OperatorError(f"expected as many starts as ends, found {starts} and {ends}")
    cuts = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = from_the_front(axis, len(shape))
        size = shape[axis]
        if isinstance(size, str):
            if (start, step) != (0, 1) or end < WHOLE // 2**32:
                cuts[axis] = (start, WHOLE if end >= 2**31 - 1 else end, axis, step)
        elif step < 1:
            raise OperatorError(f"expected steps of 1 or more, found {step}")
        elif (start, end, step) != (0, size, 1):
            places = range(*slice(start, end, step).indices(size))
            end = places[-1] + 1 if places else places.start
            if (places.start, end, step) != (0, size, 1):
                cuts[axis] = (places.start, end, axis, step)
    cut = [cuts[axis] for axis in sorted(cuts)]
    attributes.update(zip(_SLICE, zip(*cut, strict=True) if cut else [()] * 4, strict=True))


def _slice(f: Any, x: Array, **lists: Sequence[int]) -> Array:
    places = [slice(None)] * x.ndim
    for start, end, axis, step in zip(*(lists[name] for name in _SLICE), strict=True):
        places[axis] = slice(start, end, step)
    return x[tuple(places)]


_PAD_MODES = ("constant", "edge", "reflect", "wrap")
_TAKEN = {"reflect": 1, "wrap": 0}
"""Modes that copy elements of the tensor, and how many elements of an axis they cannot copy."""


def _pad_shape(x: Shape, mode: str, pads: Sequence[int], value: float) -> Shape:
    rank = len(x)
    if len(pads) != 2 * rank or min(pads, default=0) < 0:
        raise OperatorError(f"expected {2 * rank} pads, none negative, found {pads}")
    if mode not in _PAD_MODES or (mode != "constant" and value != 0):
        raise OperatorError(f"expected a mode among {', '.join(_PAD_MODES)}, found {mode}")
    for axis, size in enumerate(x):
        largest = size - _TAKEN[mode] if isinstance(size, int) and mode in _TAKEN else 0
        if mode in _TAKEN and max(pads[axis], pads[axis + rank]) > largest:
            raise OperatorError(f"expected pads up to {largest} for {size}, found {pads}")
    return tuple([dimensions.total([x[i], pads[i] + pads[i + rank]]) for i in range(rank)])


def _pad(f: Any, x: Array, mode: str, pads: Sequence[int], value: float) -> Array:
    before, after = pads[: x.ndim], pads[x.ndim :]
    if mode == "constant":
        return surrounded(x, before, after, f.number(value, x))
    return np.pad(x, list(zip(before, after, strict=True)), mode=mode)  # type: ignore[call-overload]


def surrounded(x: Array, before: Sequence[int], after: Sequence[int], value: Any = 0) -> Array:
    """Pad an array with a value; faster than NumPy's `pad` for small arrays."""
    if not any(before) and not any(after):
        return x
    sizes = [a + n + b for a, n, b in zip(before, x.shape, after, strict=True)]
    padded = np.full(sizes, value, x.dtype)
    padded[tuple([slice(a, a + n) for a, n in zip(before, x.shape, strict=True)])] = x
    return padded


def _expand_shape(x: Shape, shape: Shape) -> Shape:
    if -1 in shape:
        raise OperatorError(f"expected known sizes or names, found {shape}")
    if broadcast(x, shape) != shape:
        raise OperatorError(f"expected a shape that {x} can be expanded to, found {shape}")
    start = len(shape) - len(x)
    for place, size in enumerate(shape):
        if isinstance(size, str) and (place < start or x[place - start] != size):
            raise OperatorError(f"cannot expand {x} to a size that is not known, {size}")
    return shape


def _normalize_expand(attributes: Values, shapes: Sequence[Shape]) -> None:
    attributes["shape"] = broadcast(shapes[0], attributes["shape"])


def _expand(f: Any, x: Array, shape: Shape) -> Array:
    start = len(shape) - x.ndim
    sizes = [s if isinstance(s, int) else x.shape[i - start] for i, s in enumerate(shape)]
    return np.broadcast_to(x, sizes)


def _tile_shape(x: Shape, repeats: Sequence[int]) -> Shape:
    if len(repeats) != len(x):
        raise OperatorError(f"expected {len(x)} repeats, found {repeats}")
    return tuple([dimensions.product(pair) for pair in zip(x, repeats, strict=True)])


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


def _divided(size: Dimension, divisor: Dimension) -> Dimension:
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
    Operator(
        "Reshape", "x", _reshape_shape,
        lambda f, x, shape: x.reshape([s if isinstance(s, int) else -1 for s in shape]),
        normalize_fn=_normalize_reshape, shape=REQUIRED,
    ),
    Operator(
        "Transpose", "x", _transpose_shape, lambda f, x, perm: x.transpose(perm), perm=REQUIRED
    ),
    Operator(
        "Concat", "*x", _concat_shape, lambda f, *arrays, axis: np.concatenate(arrays, axis=axis),
        axis=REQUIRED,
    ),
    Operator(
        "Split", "x", _split_shape,
        lambda f, x, axis, split: np.split(x, np.cumsum(split)[:-1], axis=axis),
        num_outputs_fn=lambda attributes: len(attributes["split"]), axis=0, split=REQUIRED,
    ),
    Operator(
        "Slice", "x", _slice_shape, _slice,
        normalize_fn=_normalize_slice, starts=REQUIRED, ends=REQUIRED, axes=(), steps=(),
    ),
    Operator("Pad", "x", _pad_shape, _pad, mode="constant", pads=REQUIRED, value=0.0),
    Operator(
        "Expand", "x", _expand_shape, _expand, normalize_fn=_normalize_expand, shape=REQUIRED
    ),
    Operator(
        "Tile", "x", _tile_shape, lambda f, x, repeats: np.tile(x, repeats), repeats=REQUIRED
    ),
]  # fmt: skip
