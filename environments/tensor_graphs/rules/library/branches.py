"""Rules that turn a sum of convolutions into one convolution (RepVGG's branches)."""

# ruff: noqa: D103 (a rule's code says what it does)
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    Quantity,
    Tensor,
    array,
    only_where,
    op,
    rule,
    with_bias,
)
from environments.tensor_graphs.rules.library.parts import PLAIN, WINDOW, factor, normalized, outer


@with_bias("a", "b")
def sums_of_convs(x, y, v, w, a, b):
    """Convolutions of one image, or of several."""
    return {
        "sum_of_convs": (
            op.Conv(x, v, a, **WINDOW) + op.Conv(x, w, b, **WINDOW),
            op.Conv(x, v + w, a + b, **WINDOW),
            v.shape == w.shape,
        ),
        "sum_of_convs_of_images": (
            op.Conv(x, v, a, **PLAIN) + op.Conv(y, w, b, **PLAIN),
            op.Conv(op.Concat(x, y, axis=1), op.Concat(v, w, axis=1), a + b, **PLAIN),
        ),
    }


# A kernel of one pixel is a kernel of 3 × 3 with zeros around its middle.


def in_the_middle(kernel: Tensor) -> Tensor:
    """Return a kernel of one pixel padded with zeros to 3 × 3."""
    return op.Pad(kernel, pads=(0, 0, 1, 1, 0, 0, 1, 1))


@with_bias("b")
def larger_kernel(x, w: Constant, b, pads: Attribute, dilations: Attribute):
    """Alone this rule only adds cost; it gives kernels one size, so that other rules merge them."""
    window = {"strides": WINDOW["strides"], "group": WINDOW["group"], "dilations": dilations}
    more = tuple(pads[side] + dilations[side % 2] for side in range(4))
    return (
        op.Conv(x, w, b, pads=pads, **window),
        op.Conv(x, in_the_middle(w), b, pads=more, **window),
        only_where(w.shape[2:] == (1, 1)),
    )


@with_bias("a", "b")
def conv_beside_pixels(
    x, v: Constant, a: Constant, w: Constant, b: Constant, strides: Attribute, group: Attribute
):
    window = {"strides": strides, "group": group}
    return (
        op.Conv(x, v, a, pads=(1, 1, 1, 1), **window) + op.Conv(x, w, b, **window),
        op.Conv(x, v + in_the_middle(w), a + b, pads=(1, 1, 1, 1), **window),
        v.shape[2:] == (3, 3),
    )


# Adding the image itself is the same as adding its convolution with the identity kernel.


def identity(x: Tensor, group: Quantity) -> Tensor:
    """Return the kernel of 3 × 3 that changes nothing."""
    return in_the_middle(array("identity_kernel", x.dim(1), group, 2, x.dtype))


@with_bias("b")
def conv_beside_image(x, w: Constant, b: Constant, group: Attribute):
    return (
        op.Conv(x, w, b, pads=(1, 1, 1, 1), group=group) + x,
        op.Conv(x, w + identity(x, group), b, pads=(1, 1, 1, 1), group=group),
    )


@rule
def conv_beside_normalized_image(
    x,
    w: Constant,
    a: Constant,
    s: Constant,
    b: Constant,
    m: Constant,
    v: Constant,
    group: Attribute,
):
    k = factor(s, v)
    window = {"pads": (1, 1, 1, 1), "group": group}
    return (
        op.Conv(x, w, a, **window) + normalized(x, s, b, m, v),
        op.Conv(x, w + identity(x, group) * outer(k, w), a + (b - m * k), **window),
    )
