"""Convolutions and pools: operators on windows.

The canonical forms for k spatial axes always have `pads` (2·k numbers, all those before an axis
first), `strides` and `dilations` (k numbers each); their defaults are for two axes. `auto_pad` is
replaced by `pads`. Convolutions have no `kernel_shape`, since the weight's shape contains it.

  Conv(x, w[, b])            dilations, group, pads, strides
  ConvTranspose(x, w[, b])   the same and output_padding; `output_shape` is replaced by `pads`
  MaxPool(x)                 ceil_mode, dilations, kernel_shape, pads, strides; one output
  AveragePool(x)             the same and count_include_pad
  GlobalAveragePool(x)
  GlobalMaxPool(x)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import Attributes, Dimension, TensorType, attributes_of
from environments.tensor_graphs.operators import dimensions
from environments.tensor_graphs.operators.layout import surrounded
from environments.tensor_graphs.operators.operator import (
    REQUIRED,
    Operator,
    OperatorError,
    Shape,
    Values,
    float_dtype,
    flops_per_input,
    num_elements,
    same_dtype,
)

Array = np.ndarray
_WINDOW = {"dilations": (1, 1), "pads": (0, 0, 0, 0), "strides": (1, 1)}


def _num_windows(
    sizes: Shape, kernel: Sequence[Any], attributes: Values, ceil_mode: int = 0
) -> tuple[Dimension, ...]:
    """Count the windows along each spatial axis."""
    num_axes = len(sizes)
    pads, strides, dilations = (attributes[name] for name in ("pads", "strides", "dilations"))
    lengths = (len(kernel), len(pads), len(strides), len(dilations))
    if lengths != (num_axes, 2 * num_axes, num_axes, num_axes):
        names = "kernel, pads, strides, dilations"
        raise OperatorError(
            f"expected {names} for {num_axes} spatial axes, found {lengths} numbers"
        )
    if min(pads) < 0:
        raise OperatorError(f"expected pads of 0 or more, found {pads}")
    counts = []
    for axis, size in enumerate(sizes):
        before, after, stride = pads[axis], pads[axis + num_axes], strides[axis]
        free = dimensions.total([size, before + after - dilations[axis] * (kernel[axis] - 1) - 1])
        if isinstance(free, int) and free < 0:
            raise OperatorError(f"expected a window that fits into {size}, found {kernel[axis]}")
        count = dimensions.rounded_down(dimensions.total([free, ceil_mode * (stride - 1)]), stride)
        # A window must not begin in the padding at the end.
        if ceil_mode and isinstance(count, int) and count * stride >= size + before:
            count -= 1
        elif ceil_mode and isinstance(count, str) and stride > 1:
            raise OperatorError("cannot tell the number of windows with ceil_mode")
        counts.append(dimensions.total([count, 1]))
    return tuple(counts)


def _windows(x: Array, kernel: Sequence[int], attributes: Values, counts: Sequence[int]) -> Array:
    """Return a view of all windows, [N, C, *counts, *kernel]; x may be larger than needed."""
    strides, dilations = attributes["strides"], attributes["dilations"]
    reach: Any = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    axes: Any = tuple(range(2, x.ndim))
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=axes)
    places = [slice(0, (n - 1) * s + 1, s) for n, s in zip(counts, strides, strict=True)]
    inside = [slice(None, None, d) for d in dilations]
    return view[(slice(None), slice(None), *places, *inside)]


def _padded(x: Array, pads: Sequence[int]) -> Array:
    """Pad the spatial axes with zeros."""
    half = len(pads) // 2
    return surrounded(x, (0, 0, *pads[:half]), (0, 0, *pads[half:]))


def _conv_shape(shapes: Sequence[Shape], attributes: Values) -> tuple[Shape]:
    x, w = shapes[:2]
    group = attributes["group"]
    if len(x) < 3 or len(x) != len(w):
        raise OperatorError(f"expected tensors of one rank, 3 or more, found {x} and {w}")
    if not all(isinstance(size, int) for size in w):
        raise OperatorError(f"expected a weight of known shape, found {w}")
    if x[1] != w[1] * group or w[0] % group:
        raise OperatorError(f"expected a weight for {group} groups of {x[1]}, found {w}")
    if len(shapes) == 3 and shapes[2] != (w[0],):
        raise OperatorError(f"expected a bias of shape {w[:1]}, found {shapes[2]}")
    return ((x[0], w[0], *_num_windows(x[2:], w[2:], attributes)),)


def _conv(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
    x, w = arrays[:2]
    group, kernel = attributes["group"], w.shape[2:]
    counts: Any = _num_windows(x.shape[2:], kernel, attributes)
    view = _windows(_padded(x, attributes["pads"]), kernel, attributes, counts)
    num, channels, num_axes = x.shape[0], x.shape[1] // group, len(kernel)
    view = view.reshape(num, group, channels, *counts, *kernel)
    # [N, group, *counts, C / group, *kernel] · [group, C / group · kernel, M / group]
    spatial = range(3, 3 + num_axes)
    view = view.transpose(0, 1, *spatial, 2, *range(3 + num_axes, 3 + 2 * num_axes))
    columns = view.reshape(num, group, math.prod(counts), -1)
    weight = w.reshape(group, w.shape[0] // group, -1).swapaxes(1, 2)
    y = algebra.matmul(columns, weight).swapaxes(2, 3).reshape(num, w.shape[0], *counts)
    return (_biased(algebra, y, arrays),)


def _biased(algebra: Any, y: Array, arrays: Sequence[Array]) -> Array:
    if len(arrays) < 3:
        return y
    return algebra.add(y, arrays[2].reshape(-1, *[1] * (y.ndim - 2)))


def _conv_flops(inputs: Sequence[Any], outputs: Sequence[TensorType], attributes: Values) -> int:
    weight = inputs[1].shape
    if weight is None:
        return 0
    per_element = 2 * math.prod(size for size in weight[1:] if isinstance(size, int))
    return num_elements(outputs[0]) * (per_element + (len(inputs) == 3))


def _conv_transpose_shape(shapes: Sequence[Any], attributes: Values) -> tuple[Shape]:
    x, w = shapes[:2]
    group, num_axes = attributes["group"], len(x) - 2
    if num_axes < 1 or len(x) != len(w) or x[1] != w[0] or w[0] % group:
        raise OperatorError(f"expected a weight for {group} groups of {x[1:2]}, found {w}")
    if not all(isinstance(size, int) for size in w):
        raise OperatorError(f"expected a weight of known shape, found {w}")
    if len(shapes) == 3 and shapes[2] != (w[1] * group,):
        raise OperatorError(f"expected a bias of shape {(w[1] * group,)}, found {shapes[2]}")
    names = ("strides", "dilations", "output_padding")
    if any(len(attributes[name]) != num_axes for name in names):
        raise OperatorError(f"expected {', '.join(names)} for {num_axes} spatial axes")
    if len(attributes["pads"]) != 2 * num_axes or min(attributes["pads"]) < 0:
        raise OperatorError(f"expected {2 * num_axes} pads of 0 or more")
    sizes = []
    for axis, size in enumerate(x[2:]):
        stride, dilation = attributes["strides"][axis], attributes["dilations"][axis]
        if not 0 <= attributes["output_padding"][axis] < stride:
            raise OperatorError("expected output_padding of 0 or more and below the stride")
        pads = attributes["pads"][axis] + attributes["pads"][axis + num_axes]
        reach = dilation * (w[2 + axis] - 1) + attributes["output_padding"][axis] + 1
        between = dimensions.product([stride, dimensions.total([size, -1])])
        sizes.append(dimensions.total([between, reach - pads]))
        if isinstance(sizes[-1], int) and sizes[-1] < 1:
            raise OperatorError(f"expected smaller pads, found {attributes['pads']}")
    return ((x[0], w[1] * group, *sizes),)


def _conv_transpose(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
    """Convolve x, with zeros between its elements, with the flipped weight."""
    x, w = arrays[:2]
    group, strides, pads = attributes["group"], attributes["strides"], attributes["pads"]
    num_axes = x.ndim - 2
    spread = [(size - 1) * s + 1 for size, s in zip(x.shape[2:], strides, strict=True)]
    apart = np.zeros((*x.shape[:2], *spread), x.dtype)
    apart[(slice(None), slice(None), *(slice(None, None, s) for s in strides))] = x
    around = [d * (k - 1) for d, k in zip(attributes["dilations"], w.shape[2:], strict=True)]
    behind = [a + o for a, o in zip(around, attributes["output_padding"], strict=True)]
    apart = _padded(apart, [*around, *behind])
    ends = [size - pads[num_axes + i] for i, size in enumerate(apart.shape[2:])]
    inside = [slice(pads[i], ends[i]) for i in range(num_axes)]
    apart = apart[(slice(None), slice(None), *inside)]
    weight = w.reshape(group, w.shape[0] // group, *w.shape[1:]).swapaxes(1, 2)
    weight = weight.reshape(group * w.shape[1], w.shape[0] // group, *w.shape[2:])
    weight = np.flip(weight, tuple(range(2, w.ndim)))
    plain = {
        "dilations": attributes["dilations"],
        "group": group,
        "pads": (0,) * 2 * num_axes,
        "strides": (1,) * num_axes,
    }
    return _conv(algebra, [apart, weight, *arrays[2:]], plain)


def _conv_transpose_flops(
    inputs: Sequence[Any], outputs: Sequence[TensorType], attributes: Values
) -> int:
    weight = inputs[1].shape
    if weight is None:
        return 0
    per_element = 2 * math.prod(size for size in weight[1:] if isinstance(size, int))
    biased = num_elements(outputs[0]) if len(inputs) == 3 else 0
    return num_elements(inputs[0]) * per_element + biased


def _pool_shape(shapes: Sequence[Shape], attributes: Values) -> tuple[Shape]:
    x, kernel, pads = shapes[0], attributes["kernel_shape"], attributes["pads"]
    if len(x) < 3:
        raise OperatorError(f"expected a tensor of rank 3 or more, found {x}")
    counts = _num_windows(x[2:], kernel, attributes, attributes["ceil_mode"])
    if any(pad >= size for pad, size in zip(pads, (*kernel, *kernel), strict=True)):
        raise OperatorError(f"expected pads smaller than the window {kernel}, found {pads}")
    return ((*x[:2], *counts),)


def _pool_windows(x: Array, attributes: Values) -> tuple[Array, Array]:
    """Return the windows of x, and which of their elements count, [1, 1, *counts, *kernel]."""
    kernel = attributes["kernel_shape"]
    pads, counts, inside = _pool_plan(x.shape[2:], attributes_of(attributes))
    return _windows(_padded(x, pads), kernel, attributes, counts), inside


@functools.lru_cache(maxsize=1 << 10)
def _pool_plan(
    sizes: tuple[int, ...], values: Attributes
) -> tuple[tuple[int, ...], tuple[int, ...], Array]:
    """Return pads including those of ceil_mode, numbers of windows, and the elements that count."""
    attributes: Values = dict(values)
    pads, kernel, strides, dilations = (
        attributes[name] for name in ("pads", "kernel_shape", "strides", "dilations")
    )
    counts: Any = _num_windows(sizes, kernel, attributes, attributes["ceil_mode"])
    half = len(kernel)
    extra = [
        (n - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1 - (sizes[i] + sum(pads[i::half]))
        for i, n in enumerate(counts)
    ]
    beyond = (*[0] * half, *[max(0, missing) for missing in extra])
    more = tuple([pad + behind for pad, behind in zip(pads, beyond, strict=True)])
    inside = np.ones((1, 1, *sizes), bool)
    if attributes.get("count_include_pad"):
        inside = _padded(np.ones_like(_padded(inside, pads)), beyond)
    else:
        inside = _padded(inside, more)
    return more, counts, _windows(inside, kernel, attributes, counts)


def _max_pool(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
    values, inside = _pool_windows(arrays[0], attributes)
    axes = range(arrays[0].ndim, values.ndim)
    return (algebra.max(values, axes, where=np.broadcast_to(inside, values.shape)),)


def _average_pool(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
    values, inside = _pool_windows(arrays[0], attributes)
    axes = range(arrays[0].ndim, values.ndim)
    counts = np.sum(inside, axis=tuple(axes)).astype(values.dtype)
    return (algebra.divide(algebra.sum(values, axes), counts),)


def _pool_flops(inputs: Sequence[Any], outputs: Sequence[TensorType], attributes: Values) -> int:
    return num_elements(outputs[0]) * math.prod(attributes["kernel_shape"])


def _global_shape(shapes: Sequence[Shape], attributes: Values) -> tuple[Shape]:
    if len(shapes[0]) < 3:
        raise OperatorError(f"expected a tensor of rank 3 or more, found {shapes[0]}")
    return ((*shapes[0][:2], *[1] * (len(shapes[0]) - 2)),)


def _global_average(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
    return (algebra.mean(arrays[0], range(2, arrays[0].ndim), keepdims=True),)


def _global_max(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
    return (algebra.max(arrays[0], range(2, arrays[0].ndim), keepdims=True),)


def _pool(name: str, evaluate: Any, **attributes: Any) -> Operator:
    return Operator(
        name=name,
        inputs=("x",),
        attributes={**_WINDOW, "ceil_mode": 0, "kernel_shape": REQUIRED, **attributes},
        shapes_fn=_pool_shape,
        dtypes_fn=same_dtype,
        evaluate_fn=evaluate,
        flops_fn=_pool_flops,
    )


def _global_pool(name: str, evaluate: Any) -> Operator:
    return Operator(
        name=name,
        inputs=("x",),
        attributes={},
        shapes_fn=_global_shape,
        dtypes_fn=float_dtype,
        evaluate_fn=evaluate,
        flops_fn=flops_per_input(1),
    )


OPERATORS = [
    Operator(
        name="Conv",
        inputs=("x", "w", "b?"),
        attributes={**_WINDOW, "group": 1},
        shapes_fn=_conv_shape,
        dtypes_fn=float_dtype,
        evaluate_fn=_conv,
        flops_fn=_conv_flops,
    ),
    Operator(
        name="ConvTranspose",
        inputs=("x", "w", "b?"),
        attributes={**_WINDOW, "group": 1, "output_padding": (0, 0)},
        shapes_fn=_conv_transpose_shape,
        dtypes_fn=float_dtype,
        evaluate_fn=_conv_transpose,
        flops_fn=_conv_transpose_flops,
    ),
    _pool("MaxPool", _max_pool),
    _pool("AveragePool", _average_pool, count_include_pad=0),
    _global_pool("GlobalAveragePool", _global_average),
    _global_pool("GlobalMaxPool", _global_max),
]
