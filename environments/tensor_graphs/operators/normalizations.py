"""Normalisations and Softmax.

The canonical forms have one output; axes are counted from the front.

  BatchNormalization(x, scale, bias, mean, var)   epsilon; as in inference, channels are axis 1
  InstanceNormalization(x, scale, bias)           epsilon
  LayerNormalization(x, scale[, bias])            axis (the first one that is normalised), epsilon;
                                                  `stash_type` is always 1, ONNX's default
  Softmax(x), LogSoftmax(x)                       axis, always given
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.operators.elementwise import broadcast
from environments.tensor_graphs.operators.operator import (
    REQUIRED,
    Operator,
    OperatorError,
    Shape,
    checked_axis,
    float_dtype,
)

Array = np.ndarray


def _channels_shape(x: Shape, *others: Shape, epsilon: float) -> Shape:
    if len(x) < 2:
        raise OperatorError(f"expected a tensor of rank 2 or more, found {x}")
    for shape in others:
        if shape != x[1:2]:
            raise OperatorError(f"expected one number for each of {x[1]} channels, found {shape}")
    return x


def _normalized(f: Any, x: Array, mean: Array, var: Array, epsilon: float) -> Array:
    deviation = f.apply("Sqrt", f.add(var, f.number(epsilon, var)))
    return f.divide(f.subtract(x, mean), deviation)


def _batch(f: Any, x: Array, *others: Array, epsilon: float) -> Array:
    scale, bias, mean, var = (_along_channels(array, x.ndim) for array in others)
    y = _normalized(f, x, mean, var, epsilon)
    return f.add(f.multiply(y, scale), bias)


def _along_channels(x: Array, rank: int) -> Array:
    return x.reshape(-1, *[1] * (rank - 2))


def _instance(f: Any, x: Array, scale: Array, bias: Array, epsilon: float) -> Array:
    y = _own(f, x, range(2, x.ndim), epsilon)
    y = f.multiply(y, _along_channels(scale, x.ndim))
    return f.add(y, _along_channels(bias, x.ndim))


def _own(f: Any, x: Array, axes: Sequence[int], epsilon: float) -> Array:
    """Normalise an array by its own mean and variance over axes."""
    mean = f.mean(x, axes, keepdims=True)
    apart = f.subtract(x, mean)
    var = f.mean(f.multiply(apart, apart), axes, keepdims=True)
    return _normalized(f, x, mean, var, epsilon)


def _layer_shape(x: Shape, *others: Shape, axis: int, epsilon: float) -> Shape:
    checked_axis(axis, len(x))
    for shape in others:
        if broadcast(x[axis:], shape) != x[axis:]:
            raise OperatorError(f"expected what fits to {x[axis:]}, found {shape}")
    return x


def layer(
    f: Any, x: Array, scale: Array, bias: Array | None = None, *, axis: int, epsilon: float
) -> Array:
    """Normalise from an axis on, then scale and shift."""
    y = f.multiply(_own(f, x, range(axis, x.ndim), epsilon), scale)
    return y if bias is None else f.add(y, bias)


def _along_axis_shape(x: Shape, axis: int) -> Shape:
    checked_axis(axis, len(x))
    return x


def softmax(f: Any, x: Array, axis: int) -> Array:
    """Compute the shares of powers along an axis, which add up to 1."""
    if x.dtype.kind == "f":
        x = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    powers = f.apply("Exp", x)
    return f.divide(powers, f.sum(powers, [axis], keepdims=True))


def _log_softmax(f: Any, x: Array, axis: int) -> Array:
    # The logarithm of shares that are rounded to 0 would be -inf.
    if x.dtype.kind == "f":
        x = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
        return x - np.log(np.sum(np.exp(x), axis=axis, keepdims=True))
    return f.apply("Log", softmax(f, x, axis))


_operator = functools.partial(Operator, dtype_fn=float_dtype)
_BATCH = "x scale bias mean var"

OPERATORS = [
    _operator("BatchNormalization", _BATCH, _channels_shape, _batch, 2, epsilon=1e-5),
    _operator("InstanceNormalization", "x scale bias", _channels_shape, _instance, 8, epsilon=1e-5),
    _operator(
        "LayerNormalization", "x scale bias?", _layer_shape, layer, 8, axis=REQUIRED, epsilon=1e-5
    ),
    _operator("LogSoftmax", "x", _along_axis_shape, _log_softmax, 12, axis=REQUIRED),
    _operator("Softmax", "x", _along_axis_shape, softmax, 12, axis=REQUIRED),
]
