"""Rules that keep images in the layout in which onnxruntime's convolutions on a CPU work.

These convolutions hold channels in blocks (NCHWc). An Add or Mul with a constant cannot, so
onnxruntime turns the image into rows before it, and into blocks after it. A BatchNormalization can.

Whether that pays depends on what is before and after it, which no estimate of single operators
knows. So a search hardly takes these steps; `selection.blocking` applies them all, and the models
with and without them are measured.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from environments.tensor_graphs.rules.language.notation import (
    Constant,
    Tensor,
    any_of,
    array,
    op,
    rules,
)
from environments.tensor_graphs.rules.library.parts import flat

_IMAGE_RANK = 4


def _linear(x: Tensor, scale: Tensor | float, bias: Tensor | float) -> Tensor:
    """Return x · scale + bias as a batch normalisation of mean 0 and variance 1."""

    def vector(value: Tensor | float) -> Tensor:
        if isinstance(value, Tensor):
            return op.Expand(flat(value), shape=(x.dim(1),))
        return array("full", value, (x.dim(1),), x.dtype)

    vectors = [vector(number) for number in (scale, bias, 0.0, 1.0)]
    return op.BatchNormalization(x, *vectors, epsilon=0.0)


@rules
def as_batch_norm(x, s: Constant, c: Constant):
    """Sums and products whose constants differ only along images' channels, if at all."""
    is_image = x.rank == _IMAGE_RANK
    of_s, of_c = (any_of(t.size == 1, t.dim(1 - _IMAGE_RANK) == t.size) for t in (s, c))
    return {
        "linear_is_batch_norm": (x * s + c, _linear(x, s, c), is_image, of_s, of_c),
        "sum_is_batch_norm": (x + c, _linear(x, 1.0, c), is_image, of_c),
        "product_is_batch_norm": (x * s, _linear(x, s, 0.0), is_image, of_s),
    }
