"""Rules that keep images in the layout in which onnxruntime's convolutions on a CPU work.

These convolutions hold channels in blocks (NCHWc). An Add or Mul with a constant cannot, so
onnxruntime turns the image into rows before it, and into blocks after it. A BatchNormalization can.

Whether that pays depends on what is before and after it, which no estimate of single operators
knows. So a search hardly takes these steps; `selection.blocking` applies them all, and the models
with and without them are measured.
"""

# ruff: noqa: D103 (a rule's code says what it does)
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from environments.tensor_graphs.rules.language.notation import (
    Constant,
    Quantity,
    Tensor,
    any_of,
    array,
    op,
    rule,
)
from environments.tensor_graphs.rules.library.parts import flat

_IMAGE_RANK = 4


def _of_channels(tensor: Tensor) -> Quantity:
    """Return the condition that a constant differs only along images' channels, if at all."""
    return any_of(tensor.size == 1, tensor.dim(1 - _IMAGE_RANK) == tensor.size)


def _linear(x: Tensor, scale: Tensor | float, bias: Tensor | float) -> Tensor:
    """Return x · scale + bias as a batch normalisation of mean 0 and variance 1."""

    def vector(value: Tensor | float) -> Tensor:
        if isinstance(value, Tensor):
            return op.Expand(flat(value), shape=(x.dim(1),))
        return array("full", value, (x.dim(1),), x.dtype)

    vectors = [vector(number) for number in (scale, bias, 0.0, 1.0)]
    return op.BatchNormalization(x, *vectors, epsilon=0.0)


@rule
def linear_is_batch_norm(x, s: Constant, c: Constant):
    return (
        x * s + c,
        _linear(x, s, c),
        x.rank == _IMAGE_RANK,
        _of_channels(s),
        _of_channels(c),
    )


@rule
def sum_is_batch_norm(x, c: Constant):
    return x + c, _linear(x, 1.0, c), x.rank == _IMAGE_RANK, _of_channels(c)


@rule
def product_is_batch_norm(x, s: Constant):
    return x * s, _linear(x, s, 0.0), x.rank == _IMAGE_RANK, _of_channels(s)
