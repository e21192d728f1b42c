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

from environments.tensor_graphs.graph.nodes import Attributes, Dimension, attributes_of
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
)

Array = np.ndarray


def _num_windows(
    sizes: Sequence[Any], kernel: Sequence[Any], ceil_mode: int = 0,
    pads: Sequence[int] = (), strides: Sequence[int] = (), dilations: Sequence[int] = (),
) -> tuple[Dimension, ...]:  # fmt: skip
    num_axes = len(sizes)
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


def _windows(
    x: Array, kernel: Sequence[int], counts: Sequence[int],
    strides: Sequence[int], dilations: Sequence[int], **_: Any,
) -> Array:  # fmt: skip
    """Return a view of all windows, [N, C, *counts, *kernel]; x may be larger than needed."""
    reach: Any = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    axes: Any = tuple(range(2, x.ndim))
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=axes)
    places = [slice(0, (n - 1) * s + 1, s) for n, s in zip(counts, strides, strict=True)]
    inside = [slice(None, None, d) for d in dilations]
    return view[(slice(None), slice(None), *places, *inside)]


def _padded(x: Array, pads: Sequence[int]) -> Array:
    half = len(pads) // 2
    return surrounded(x, (0, 0, *pads[:half]), (0, 0, *pads[half:]))


def _num_channels(
    x: Shape, w: Any, b: Shape | None, group: int, is_transposed: bool = False
) -> int:
    """Return how many channels a convolution gives; OperatorError if its inputs do not fit."""
    if len(x) < 3 or len(x) != len(w):
        raise OperatorError(f"expected tensors of one rank, 3 or more, found {x} and {w}")
    if not all(isinstance(size, int) for size in w):
        raise OperatorError(f"expected a weight of known shape, found {w}")
    num_in, num_out = (w[0], w[1] * group) if is_transposed else (w[1] * group, w[0])
    if x[1] != num_in or w[0] % group:
        raise OperatorError(f"expected a weight for {group} groups of {x[1]}, found {w}")
    if b is not None and b != (num_out,):
        raise OperatorError(f"expected a bias of shape {(num_out,)}, found {b}")
    return num_out


def _conv_shape(x: Shape, w: Shape, b: Shape | None = None, *, group: int, **window: Any) -> Shape:
    num_channels = _num_channels(x, w, b, group)
    return (x[0], num_channels, *_num_windows(x[2:], w[2:], **window))


def _conv(
    f: Any, x: Array, w: Array, b: Array | None = None, *, group: int, **window: Any
) -> Array:
    kernel = w.shape[2:]
    counts: Any = _num_windows(x.shape[2:], kernel, **window)
    view = _windows(_padded(x, window["pads"]), kernel, counts, **window)
    num, channels, num_axes = x.shape[0], x.shape[1] // group, len(kernel)
    view = view.reshape(num, group, channels, *counts, *kernel)
    # [group, M / group, C / group · kernel] · [N, group, C / group · kernel, counts].
    # What lies side by side in x is copied side by side: three times as fast as window by window.
    spatial = range(3, 3 + num_axes)
    view = view.transpose(0, 1, 2, *range(3 + num_axes, 3 + 2 * num_axes), *spatial)
    columns = view.reshape(num, group, -1, math.prod(counts))
    weight = w.reshape(group, w.shape[0] // group, -1)
    y = f.matmul(weight, columns).reshape(num, w.shape[0], *counts)
    return y if b is None else f.add(y, b.reshape(-1, *[1] * num_axes))


def _conv_flops(inputs: Sequence[Any], output: Any, attributes: Values) -> int:
    """Count two operations for each weight that an element meets, and one for its bias.

    A Conv meets the weights for each element of its output, a ConvTranspose for each of its input.
    """
    weight = inputs[1].shape
    if weight is None:
        return 0
    per_element = 2 * math.prod(size for size in weight[1:] if isinstance(size, int))
    products = inputs[0] if "output_padding" in attributes else output
    biased = num_elements(output) if len(inputs) == 3 else 0
    return num_elements(products) * per_element + biased


def _conv_transpose_shape(
    x: Any, w: Any, b: Shape | None = None, *,
    group: int, strides: Any, dilations: Any, output_padding: Any, pads: Any,
) -> Shape:  # fmt: skip
    num_channels, num_axes = _num_channels(x, w, b, group, is_transposed=True), len(x) - 2
    if any(len(numbers) != num_axes for numbers in (strides, dilations, output_padding)):
        names = "strides, dilations, output_padding"
        raise OperatorError(f"expected {names} for {num_axes} spatial axes")
    if len(pads) != 2 * num_axes or min(pads) < 0:
        raise OperatorError(f"expected {2 * num_axes} pads of 0 or more")
    sizes = []
    for axis, size in enumerate(x[2:]):
        if not 0 <= output_padding[axis] < strides[axis]:
            raise OperatorError("expected output_padding of 0 or more and below the stride")
        reach = dilations[axis] * (w[2 + axis] - 1) + output_padding[axis] + 1
        between = dimensions.product([strides[axis], dimensions.total([size, -1])])
        sizes.append(dimensions.total([between, reach - pads[axis] - pads[axis + num_axes]]))
        if isinstance(sizes[-1], int) and sizes[-1] < 1:
            raise OperatorError(f"expected smaller pads, found {pads}")
    return (x[0], num_channels, *sizes)


def _conv_transpose(
    f: Any, x: Array, w: Array, *b: Array,
    group: int, strides: Any, dilations: Any, output_padding: Any, pads: Any,
) -> Array:  # fmt: skip
    """Convolve x, with zeros between its elements, with the flipped weight."""
    num_axes = x.ndim - 2
    spread = [(size - 1) * s + 1 for size, s in zip(x.shape[2:], strides, strict=True)]
    apart = np.zeros((*x.shape[:2], *spread), x.dtype)
    apart[(slice(None), slice(None), *(slice(None, None, s) for s in strides))] = x
    around = [d * (k - 1) for d, k in zip(dilations, w.shape[2:], strict=True)]
    behind = [a + o for a, o in zip(around, output_padding, strict=True)]
    apart = _padded(apart, [*around, *behind])
    ends = [size - pads[num_axes + i] for i, size in enumerate(apart.shape[2:])]
    inside = [slice(pads[i], ends[i]) for i in range(num_axes)]
    apart = apart[(slice(None), slice(None), *inside)]
    weight = w.reshape(group, w.shape[0] // group, *w.shape[1:]).swapaxes(1, 2)
    weight = weight.reshape(group * w.shape[1], w.shape[0] // group, *w.shape[2:])
    weight = np.flip(weight, tuple(range(2, w.ndim)))
    plain = {"dilations": dilations, "pads": (0,) * 2 * num_axes, "strides": (1,) * num_axes}
    return _conv(f, apart, weight, *b, group=group, **plain)


def _pool_shape(
    x: Shape, kernel_shape: Sequence[int], ceil_mode: int, count_include_pad: int = 0, **window: Any
) -> Shape:
    if len(x) < 3:
        raise OperatorError(f"expected a tensor of rank 3 or more, found {x}")
    counts = _num_windows(x[2:], kernel_shape, ceil_mode, **window)
    pads = window["pads"]
    if any(pad >= size for pad, size in zip(pads, (*kernel_shape, *kernel_shape), strict=True)):
        raise OperatorError(f"expected pads smaller than the window {kernel_shape}, found {pads}")
    return (*x[:2], *counts)


def _pool_windows(x: Array, attributes: Values) -> tuple[Array, Array]:
    """Return the windows of x, and which of their elements count, [1, 1, *counts, *kernel]."""
    pads, counts, inside = _pool_plan(x.shape[2:], attributes_of(attributes))
    strides, dilations = attributes["strides"], attributes["dilations"]
    kernel = attributes["kernel_shape"]
    return _windows(_padded(x, pads), kernel, counts, strides, dilations), inside


@functools.lru_cache(maxsize=1 << 10)
def _pool_plan(
    sizes: tuple[int, ...], attributes: Attributes
) -> tuple[tuple[int, ...], tuple[int, ...], Array]:
    """Return pads including those of ceil_mode, numbers of windows, and the elements that count."""
    values: Values = dict(attributes)
    pads, kernel, strides, dilations = (
        values[name] for name in ("pads", "kernel_shape", "strides", "dilations")
    )
    counts: Any = _num_windows(sizes, kernel, values["ceil_mode"], pads, strides, dilations)
    half = len(kernel)
    extra = [
        (n - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1 - (sizes[i] + sum(pads[i::half]))
        for i, n in enumerate(counts)
    ]
    beyond = (*[0] * half, *[max(0, missing) for missing in extra])
    more = tuple([pad + behind for pad, behind in zip(pads, beyond, strict=True)])
    inside = np.ones((1, 1, *sizes), bool)
    if values.get("count_include_pad"):
        inside = _padded(np.ones_like(_padded(inside, pads)), beyond)
    else:
        inside = _padded(inside, more)
    return more, counts, _windows(inside, kernel, counts, strides, dilations)


def _max_pool(f: Any, x: Array, **attributes: Any) -> Array:
    values, inside = _pool_windows(x, attributes)
    return f.max(values, range(x.ndim, values.ndim), where=np.broadcast_to(inside, values.shape))


def _average_pool(f: Any, x: Array, **attributes: Any) -> Array:
    values, inside = _pool_windows(x, attributes)
    axes = tuple(range(x.ndim, values.ndim))
    return f.divide(f.sum(values, axes), np.sum(inside, axis=axes).astype(values.dtype))


def _global_shape(x: Shape) -> Shape:
    if len(x) < 3:
        raise OperatorError(f"expected a tensor of rank 3 or more, found {x}")
    return (*x[:2], *[1] * (len(x) - 2))


_WINDOW: Values = {"dilations": (1, 1), "pads": (0, 0, 0, 0), "strides": (1, 1)}
_POOL: Values = {
    **_WINDOW,
    "ceil_mode": 0,
    "kernel_shape": REQUIRED,
    "flops": lambda inputs, output, attributes: (
        num_elements(output) * math.prod(attributes["kernel_shape"])
    ),
}
_CONV: Values = {**_WINDOW, "group": 1, "dtype_fn": float_dtype, "flops": _conv_flops}
_GLOBAL: Values = {"dtype_fn": float_dtype, "flops": flops_per_input(1)}

OPERATORS = [
    Operator("Conv", "x w b?", _conv_shape, _conv, **_CONV),
    Operator(
        "ConvTranspose", "x w b?", _conv_transpose_shape, _conv_transpose,
        **_CONV, output_padding=(0, 0),
    ),
    Operator("MaxPool", "x", _pool_shape, _max_pool, **_POOL),
    Operator("AveragePool", "x", _pool_shape, _average_pool, **_POOL, count_include_pad=0),
    Operator(
        "GlobalAveragePool", "x", _global_shape,
        lambda f, x: f.mean(x, range(2, x.ndim), keepdims=True), **_GLOBAL,
    ),
    Operator(
        "GlobalMaxPool", "x", _global_shape,
        lambda f, x: f.max(x, range(2, x.ndim), keepdims=True), **_GLOBAL,
    ),
]  # fmt: skip
