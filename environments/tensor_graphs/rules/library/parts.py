"""What several families of rules are written with."""

from __future__ import annotations

from environments.tensor_graphs.rules.language.expressions import Name
from environments.tensor_graphs.rules.language.notation import (
    Quantity,
    Restriction,
    Tensor,
    any_of,
    call,
    concat,
    only_where,
    op,
    repeat,
)

PLAIN = {name: Quantity(Name(name)) for name in ("dilations", "pads", "strides")}
"""Attributes of a convolution of one group, bound by their own names."""

WINDOW = {"group": Quantity(Name("group")), **PLAIN}
"""Attributes of any convolution."""

GEMM = {name: Quantity(Name(name)) for name in ("alpha", "transA", "transB")}
"""Attributes of Gemm, without beta."""


def row(tensor: Tensor) -> Tensor:
    """A tensor as a matrix of one row."""
    return op.Reshape(tensor, shape=(1, -1))


def column(tensor: Tensor) -> Tensor:
    """A tensor as a matrix of one column."""
    return op.Reshape(tensor, shape=(-1, 1))


def inverse(tensor: Tensor) -> Tensor:
    """What to multiply with instead of dividing; there is none of integers."""
    return op.Reciprocal(tensor)


def flat(tensor: Tensor) -> Tensor:
    """A tensor as a vector."""
    return op.Reshape(tensor, shape=(-1,))


def outer(vector: Tensor, kernel: Tensor) -> Tensor:
    """A vector of a factor for each output channel, to multiply a convolution's weight with."""
    return op.Reshape(vector, shape=concat((-1,), repeat(1, kernel.rank - 1)))


def inner(vector: Tensor, kernel: Tensor) -> Tensor:
    """A vector of a factor for each input channel, to multiply a convolution's weight with."""
    return op.Reshape(vector, shape=concat((1, -1), repeat(1, kernel.rank - 2)))


def along_channels(tensor: Tensor, kernel: Tensor) -> Quantity:
    """Whether a tensor broadcasts along the channels of images alone, or has one element."""
    return any_of(tensor.size == 1, tensor.dim(1 - kernel.rank) == tensor.size)


def along_last(tensor: Tensor) -> Quantity:
    """Whether a tensor broadcasts along the last axis alone, or has one element."""
    return any_of(tensor.size == 1, tensor.dim(-1) == tensor.size)


def normalized(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Batch normalisation with any epsilon, as a source has it."""
    return op.BatchNormalization(x, scale, bias, mean, variance, epsilon=Quantity(Name("epsilon")))


def factor(scale: Tensor, variance: Tensor) -> Tensor:
    """What batch normalisation multiplies with."""
    return scale / op.Sqrt(variance + Quantity(Name("epsilon")))


def fewer_axes(x: Tensor, shape: Quantity) -> Restriction:
    """Reshape moves where there are fewer axes before it: so it does not move to and fro."""
    return only_where(x.rank < call("length", shape))


def has_fractions(tensor: Tensor) -> Quantity:
    """Whether a tensor is none of integers, whose quotients are rounded."""
    return call("in", tensor.dtype, ("bfloat16", "float16", "float32", "float64"))
