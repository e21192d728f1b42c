"""Rules that exchange or merge convolutions, pools and pads of images."""

# ruff: noqa: D103 (a rule's code says what it does)
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from environments.tensor_graphs.rules.language.expressions import Name
from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    Quantity,
    array,
    concat,
    op,
    rule,
)
from environments.tensor_graphs.rules.library.parts import PLAIN, WINDOW

_POOL = {
    name: Quantity(Name(name))
    for name in ("ceil_mode", "dilations", "kernel_shape", "pads", "strides")
}

# Kernels of one pixel and pools.


@rule
def average_of_pixels(x, w: Constant, counted: Attribute):
    """A kernel of one pixel mixes channels and a pool mixes neighbours, so their order is free."""
    return (
        op.AveragePool(op.Conv(x, w), count_include_pad=counted, **_POOL),
        op.Conv(op.AveragePool(x, count_include_pad=counted, **_POOL), w),
        w.shape[2:] == (1, 1),
    )


@rule
def pixels_of_average(x, w: Constant, counted: Attribute):
    return (
        op.Conv(op.AveragePool(x, count_include_pad=counted, **_POOL), w),
        op.AveragePool(op.Conv(x, w), count_include_pad=counted, **_POOL),
        w.shape[2:] == (1, 1),
    )


@rule
def global_average_of_pixels(x, w: Constant):
    return (
        op.GlobalAveragePool(op.Conv(x, w)),
        op.Conv(op.GlobalAveragePool(x), w),
    )


@rule
def global_average_of_pixels_with_bias(x, w: Constant, b: Constant):
    return (
        op.GlobalAveragePool(op.Conv(x, w, b)),
        op.Conv(op.GlobalAveragePool(x), w, b),
    )


@rule
def average_pool_is_conv(x, kernel: Attribute, strides: Attribute):
    """An average pool is a convolution with one kernel for each channel, all elements equal."""
    shape = concat((x.dim(1), 1), kernel)
    weight = array("full", 1 / (kernel[0] * kernel[1]), shape, x.dtype)
    return (
        op.AveragePool(x, kernel_shape=kernel, strides=strides),
        op.Conv(x, weight, strides=strides, group=x.dim(1)),
    )


@rule
def relu_of_largest(x):
    """This rule needs dilations of 1.

    A window with gaps may lie in the padding only. Its largest element is then -inf, whose Relu
    is 0.
    """
    pool = {name: value for name, value in _POOL.items() if name != "dilations"}
    return op.Relu(op.MaxPool(x, **pool)), op.MaxPool(op.Relu(x), **pool)


@rule
def largest_of_relu(x):
    return op.MaxPool(op.Relu(x), **_POOL), op.Relu(op.MaxPool(x, **_POOL))


@rule
def pool_of_concat(x, y):
    return (
        op.MaxPool(op.Concat(x, y, axis=1), **_POOL),
        op.Concat(op.MaxPool(x, **_POOL), op.MaxPool(y, **_POOL), axis=1),
    )


@rule
def concat_of_pools(x, y):
    return (
        op.Concat(op.MaxPool(x, **_POOL), op.MaxPool(y, **_POOL), axis=1),
        op.MaxPool(op.Concat(x, y, axis=1), **_POOL),
    )


# Two convolutions, one after the other; the second has a kernel of one pixel.


@rule
def pixels_of_conv(x, v: Constant, w: Constant):
    product = op.Reshape(w, shape=(w.dim(0), w.dim(1))) @ op.Reshape(v, shape=(v.dim(0), -1))
    kernel = op.Reshape(product, shape=concat((w.dim(0),), v.shape[1:]))
    return (
        op.Conv(op.Conv(x, v, **PLAIN), w),
        op.Conv(x, kernel, **PLAIN),
    )


@rule
def pixels_of_conv_with_bias(x, v: Constant, a: Constant, w: Constant, b: Constant):
    mixed = op.Reshape(w, shape=(w.dim(0), w.dim(1)))
    product = mixed @ op.Reshape(v, shape=(v.dim(0), -1))
    kernel = op.Reshape(product, shape=concat((w.dim(0),), v.shape[1:]))
    return (
        op.Conv(op.Conv(x, v, a, **PLAIN), w, b),
        op.Conv(x, kernel, mixed @ a + b, **PLAIN),
    )


# Zeros around an image.


@rule
def conv_of_padded(x, w, top: Attribute, left: Attribute, bottom: Attribute, right: Attribute):
    pads = WINDOW["pads"]
    around = (pads[0] + top, pads[1] + left, pads[2] + bottom, pads[3] + right)
    return (
        op.Conv(op.Pad(x, pads=(0, 0, top, left, 0, 0, bottom, right)), w, **WINDOW),
        op.Conv(x, w, **{**WINDOW, "pads": around}),
    )


@rule
def conv_of_padded_with_bias(
    x, w, b, top: Attribute, left: Attribute, bottom: Attribute, right: Attribute
):
    pads = WINDOW["pads"]
    around = (pads[0] + top, pads[1] + left, pads[2] + bottom, pads[3] + right)
    return (
        op.Conv(op.Pad(x, pads=(0, 0, top, left, 0, 0, bottom, right)), w, b, **WINDOW),
        op.Conv(x, w, b, **{**WINDOW, "pads": around}),
    )
