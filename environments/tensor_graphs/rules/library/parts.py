"""Parts of expressions and conditions that several families of rules share."""

from __future__ import annotations

import math

from environments.tensor_graphs.rules.language.notation import (
    Quantity,
    Restriction,
    Tensor,
    any_of,
    array,
    attributes,
    call,
    concat,
    only_where,
    op,
    repeat,
)

PLAIN = attributes("dilations pads strides")
"""Attributes of a convolution of one group, bound by their own names."""

WINDOW = attributes("group") | PLAIN
"""Attributes of any convolution."""

UPWARDS = PLAIN | attributes("output_padding")
"""Attributes of a transposed convolution of one group."""

GEMM = attributes("alpha transA transB")
"""Attributes of Gemm, without beta."""

_EPSILON = attributes("epsilon")

ROOT_OF_2, ROOT_OF_HALF = math.sqrt(2), math.sqrt(0.5)


def number(value: Quantity) -> Tensor:
    """Return a tensor that holds one number; in a source it binds the number to a name."""
    return array("full", value)


def row(tensor: Tensor) -> Tensor:
    """Return a tensor as a matrix of one row."""
    return op.Reshape(tensor, shape=(1, -1))


def column(tensor: Tensor) -> Tensor:
    """Return a tensor as a matrix of one column."""
    return op.Reshape(tensor, shape=(-1, 1))


def flat(tensor: Tensor) -> Tensor:
    """Return a tensor as a vector."""
    return op.Reshape(tensor, shape=(-1,))


def outer(vector: Tensor, kernel: Tensor) -> Tensor:
    """Reshape one factor for each output channel, to multiply a convolution's weight with them."""
    return op.Reshape(vector, shape=concat((-1,), repeat(1, kernel.rank - 1)))


def inner(vector: Tensor, kernel: Tensor) -> Tensor:
    """Reshape one factor for each input channel, to multiply a convolution's weight with them."""
    return op.Reshape(vector, shape=concat((1, -1), repeat(1, kernel.rank - 2)))


def along_channels(tensor: Tensor, kernel: Tensor) -> Quantity:
    """Return the condition that a tensor differs only along images' channels, or is one number."""
    return any_of(tensor.size == 1, tensor.dim(1 - kernel.rank) == tensor.size)


def along_last(tensor: Tensor) -> Quantity:
    """Return the condition that a tensor has no long axis but the last, or is one number."""
    return any_of(tensor.size == 1, tensor.dim(-1) == tensor.size)


def normalized(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Return a batch normalisation with any epsilon, for a source."""
    return op.BatchNormalization(x, scale, bias, mean, variance, **_EPSILON)


def factor(scale: Tensor, variance: Tensor) -> Tensor:
    """Return the factor that batch normalisation multiplies x with."""
    return scale / op.Sqrt(variance + _EPSILON["epsilon"])


def fewer_axes(x: Tensor, shape: Quantity) -> Restriction:
    """Restrict a rule to a Reshape that adds axes, so that it does not move back and forth."""
    return only_where(x.rank < call("length", shape))


def has_fractions(tensor: Tensor) -> Quantity:
    """Return the condition that a tensor has floats; quotients of integers are rounded."""
    return call("in", tensor.dtype, ("bfloat16", "float16", "float32", "float64"))


def cubes(x: Tensor) -> dict[str, Tensor]:
    """Return the cube of x in all ways to write it."""
    return {"power": x**3.0, "square": x**2.0 * x, "product": x * x * x}


def half_products(x: Tensor, curve: Tensor) -> dict[str, Tensor]:
    """Return x · curve / 2, as Gelu is, in all ways to write it: by where the half stands."""
    return {"last": x * curve * 0.5, "first": (x * 0.5) * curve, "inside": x * (curve * 0.5)}
