"""Rules that exchange or merge convolutions, pools and pads of images."""

# ruff: noqa: D103 (a rule's code says what it does)
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    array,
    attributes,
    concat,
    op,
    rule,
    rules,
    with_bias,
)
from environments.tensor_graphs.rules.library.parts import PLAIN, WINDOW

_POOL = attributes("ceil_mode dilations kernel_shape pads strides")


@rules
def pixels_and_averages(x, w: Constant, counted: Attribute):
    """A kernel of one pixel mixes channels and a pool mixes neighbours, so their order is free."""
    pool = {"count_include_pad": counted, **_POOL}
    pixels_first = op.AveragePool(op.Conv(x, w), **pool)
    average_first = op.Conv(op.AveragePool(x, **pool), w)
    is_pixel = w.shape[2:] == (1, 1)
    return {
        "average_of_pixels": (pixels_first, average_first, is_pixel),
        "pixels_of_average": (average_first, pixels_first, is_pixel),
    }


@with_bias("b")
def global_average_of_pixels(x, w: Constant, b: Constant):
    return op.GlobalAveragePool(op.Conv(x, w, b)), op.Conv(op.GlobalAveragePool(x), w, b)


@rule
def average_pool_is_conv(x, kernel: Attribute, strides: Attribute):
    """An average pool is a convolution with one kernel for each channel, all elements equal."""
    shape = concat((x.dim(1), 1), kernel)
    weight = array("full", 1 / (kernel[0] * kernel[1]), shape, x.dtype)
    return (
        op.AveragePool(x, kernel_shape=kernel, strides=strides),
        op.Conv(x, weight, strides=strides, group=x.dim(1)),
    )


@rules
def largest_elements(x, y):
    """A window with gaps may lie in the padding only.

    Its largest element is then -inf, whose Relu is 0: so `relu_of_largest` needs dilations of 1.
    """
    plain = {name: value for name, value in _POOL.items() if name != "dilations"}
    concat_first = op.MaxPool(op.Concat(x, y, axis=1), **_POOL)
    pools_first = op.Concat(op.MaxPool(x, **_POOL), op.MaxPool(y, **_POOL), axis=1)
    return {
        "relu_of_largest": (op.Relu(op.MaxPool(x, **plain)), op.MaxPool(op.Relu(x), **plain)),
        "largest_of_relu": (op.MaxPool(op.Relu(x), **_POOL), op.Relu(op.MaxPool(x, **_POOL))),
        "pool_of_concat": (concat_first, pools_first),
        "concat_of_pools": (pools_first, concat_first),
    }


@with_bias("a", "b")
def pixels_of_conv(x, v: Constant, a: Constant, w: Constant, b: Constant):
    """Two convolutions, one after the other; the second has a kernel of one pixel."""
    mixed = op.Reshape(w, shape=(w.dim(0), w.dim(1)))
    product = mixed @ op.Reshape(v, shape=(v.dim(0), -1))
    kernel = op.Reshape(product, shape=concat((w.dim(0),), v.shape[1:]))
    return op.Conv(op.Conv(x, v, a, **PLAIN), w, b), op.Conv(x, kernel, mixed @ a + b, **PLAIN)


@with_bias("b")
def conv_of_padded(x, w, b, top: Attribute, left: Attribute, bottom: Attribute, right: Attribute):
    """Zeros around an image."""
    pads = WINDOW["pads"]
    around = (pads[0] + top, pads[1] + left, pads[2] + bottom, pads[3] + right)
    return (
        op.Conv(op.Pad(x, pads=(0, 0, top, left, 0, 0, bottom, right)), w, b, **WINDOW),
        op.Conv(x, w, b, **{**WINDOW, "pads": around}),
    )
