"""Normalisations and Softmax.

The canonical forms have one output; axes are counted from the front.

  BatchNormalization(x, scale, bias, mean, var)   epsilon; as in inference, channels are axis 1
  InstanceNormalization(x, scale, bias)           epsilon
  LayerNormalization(x, scale[, bias])            axis (the first one that is normalised), epsilon;
                                                  `stash_type` is always 1, ONNX's default
  Softmax(x), LogSoftmax(x)                       axis, always given
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.operators.elementwise import broadcast
from environments.tensor_graphs.operators.operator import (
    REQUIRED,
    Operator,
    OperatorError,
    Shape,
    Values,
    checked_axis,
    float_dtype,
    flops_per_input,
    normalize_axis,
)

Array = np.ndarray


def _channels_shape(shapes: Sequence[Shape], attributes: Values) -> tuple[Shape]:
    x = shapes[0]
    if len(x) < 2:
        raise OperatorError(f"expected a tensor of rank 2 or more, found {x}")
    for shape in shapes[1:]:
        if shape != x[1:2]:
            raise OperatorError(f"expected one number for each of {x[1]} channels, found {shape}")
    return (x,)


def _along_channels(x: Array, rank: int) -> Array:
    return x.reshape(-1, *[1] * (rank - 2))


def _normalized(f: Any, x: Array, mean: Array, var: Array, epsilon: float) -> Array:
    deviation = f.apply("Sqrt", f.add(var, f.number(epsilon, var)))
    return f.divide(f.subtract(x, mean), deviation)


def _batch(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
    x, (scale, bias, mean, var) = (
        arrays[0],
        (_along_channels(a, arrays[0].ndim) for a in arrays[1:]),
    )
    y = _normalized(algebra, x, mean, var, attributes["epsilon"])
    return (algebra.add(algebra.multiply(y, scale), bias),)


def _own(algebra: Any, x: Array, axes: Sequence[int], epsilon: float) -> Array:
    """Normalise an array by its own mean and variance over axes."""
    mean = algebra.mean(x, axes, keepdims=True)
    apart = algebra.subtract(x, mean)
    var = algebra.mean(algebra.multiply(apart, apart), axes, keepdims=True)
    return _normalized(algebra, x, mean, var, epsilon)


def _instance(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
    x, (scale, bias) = arrays[0], (_along_channels(a, arrays[0].ndim) for a in arrays[1:])
    y = _own(algebra, x, range(2, x.ndim), attributes["epsilon"])
    return (algebra.add(algebra.multiply(y, scale), bias),)


def _layer_shape(shapes: Sequence[Shape], attributes: Values) -> tuple[Shape]:
    x = shapes[0]
    axis = checked_axis(attributes["axis"], len(x))
    for shape in shapes[1:]:
        if broadcast(x[axis:], shape) != x[axis:]:
            raise OperatorError(f"expected what fits to {x[axis:]}, found {shape}")
    return (x,)


def _layer(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
    x = arrays[0]
    y = _own(algebra, x, range(attributes["axis"], x.ndim), attributes["epsilon"])
    y = algebra.multiply(y, arrays[1])
    return (algebra.add(y, arrays[2]) if len(arrays) == 3 else y,)


def _along_axis_shape(shapes: Sequence[Shape], attributes: Values) -> tuple[Shape]:
    checked_axis(attributes["axis"], len(shapes[0]))
    return (shapes[0],)


def _shares(algebra: Any, x: Array, axis: int) -> Array:
    if x.dtype.kind == "f":
        x = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    powers = algebra.apply("Exp", x)
    return algebra.divide(powers, algebra.sum(powers, [axis], keepdims=True))


def _softmax(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
    return (_shares(algebra, arrays[0], attributes["axis"]),)


def _log_softmax(algebra: Any, arrays: Sequence[Array], attributes: Values) -> tuple[Array]:
    x, axis = arrays[0], attributes["axis"]
    if x.dtype.kind == "f":
        x = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
        return (x - np.log(np.sum(np.exp(x), axis=axis, keepdims=True)),)
    return (algebra.apply("Log", _shares(algebra, x, axis)),)


def _operator(
    name: str,
    inputs: str,
    attributes: Values,
    shapes: Callable[..., Any],
    evaluate: Any,
    flops: int,
) -> Operator:
    return Operator(
        name=name,
        inputs=tuple(inputs.split()),
        attributes=attributes,
        shapes_fn=shapes,
        dtypes_fn=float_dtype,
        evaluate_fn=evaluate,
        flops_fn=flops_per_input(flops),
        normalize_fn=normalize_axis if "axis" in attributes else None,
    )


_EPSILON = {"epsilon": 1e-5}
_AXIS = {"axis": REQUIRED}

OPERATORS = [
    _operator(
        "BatchNormalization", "x scale bias mean var", _EPSILON, _channels_shape, _batch, flops=2
    ),
    _operator(
        "InstanceNormalization", "x scale bias", _EPSILON, _channels_shape, _instance, flops=8
    ),
    _operator(
        "LayerNormalization", "x scale bias?", _AXIS | _EPSILON, _layer_shape, _layer, flops=8
    ),
    _operator("LogSoftmax", "x", _AXIS, _along_axis_shape, _log_softmax, flops=12),
    _operator("Softmax", "x", _AXIS, _along_axis_shape, _softmax, flops=12),
]
