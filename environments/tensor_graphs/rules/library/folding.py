"""Rules that fold multiplications and additions of constants into convolutions and products."""

# ruff: noqa: D103 (a rule's code says what it does)
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    concat,
    numbers,
    only_where,
    op,
    repeat,
    rule,
    rules,
    with_bias,
)
from environments.tensor_graphs.rules.library.parts import (
    GEMM,
    PLAIN,
    UPWARDS,
    WINDOW,
    along_channels,
    along_last,
    column,
    factor,
    flat,
    inner,
    normalized,
    number,
    outer,
    row,
)


@rules
def batch_norms(x, w: Constant, c: Constant, s: Constant, b: Constant, m: Constant, v: Constant):
    """A batch normalisation is a product and a sum with constants."""
    k = factor(s, v)
    channels = concat((-1,), repeat(1, x.rank - 2))
    return {
        "batch_norm_into_conv": (
            normalized(op.Conv(x, w, **WINDOW), s, b, m, v),
            op.Conv(x, w * outer(k, w), b - m * k, **WINDOW),
        ),
        "batch_norm_into_conv_with_bias": (
            normalized(op.Conv(x, w, c, **WINDOW), s, b, m, v),
            op.Conv(x, w * outer(k, w), (c - m) * k + b, **WINDOW),
        ),
        "batch_norm_is_linear": (
            normalized(x, s, b, m, v),
            x * op.Reshape(k, shape=channels) + op.Reshape(b - m * k, shape=channels),
        ),
    }


@with_bias("b")
def mul_into_conv(x, w: Constant, b: Constant, s: Constant):
    return (
        op.Conv(x, w, b, **WINDOW) * s,
        op.Conv(x, w * outer(s, w), b * flat(s), **WINDOW),
        along_channels(s, w),
    )


@rules
def sums_with_convs(x, w, b: Constant, c: Constant):
    """What is added to a convolution becomes its bias."""
    return {
        "add_into_conv": (
            op.Conv(x, w, **WINDOW) + c,
            op.Conv(x, w, flat(c), **WINDOW),
            c.dim(1 - w.rank) == c.size,
        ),
        "add_scalar_into_conv": (
            op.Conv(x, w, **WINDOW) + c,
            op.Conv(x, w, op.Expand(flat(c), shape=(w.dim(0),)), **WINDOW),
            c.size == 1,
        ),
        "add_into_conv_with_bias": (
            op.Conv(x, w, b, **WINDOW) + c,
            op.Conv(x, w, b + flat(c), **WINDOW),
            along_channels(c, w),
        ),
    }


@with_bias("b")
def factors_before_convs(x, w: Constant, b, s: Constant):
    """One factor for all channels fits kernels of any number of groups."""
    return {
        "mul_before_conv": (
            op.Conv(x * s, w, b, **PLAIN),
            op.Conv(x, w * inner(s, w), b, **PLAIN),
            along_channels(s, w),
        ),
        "scale_before_conv": (
            op.Conv(x * s, w, b, **WINDOW),
            op.Conv(x, w * flat(s), b, **WINDOW),
            s.size == 1,
            only_where(WINDOW["group"] > 1),
        ),
        "mul_before_depthwise_conv": (
            op.Conv(x * s, w, b, **WINDOW),
            op.Conv(x, w * outer(s, w), b, **WINDOW),
            along_channels(s, w),
            w.dim(1) == 1,
        ),
    }


@rule
def scaled_hard_swish_of_conv(
    x, w: Constant, b: Constant, s: Attribute, alpha: Attribute, beta: Attribute
):
    """The factor moves into the convolution; HardSigmoid takes it back from its own input.

    Nothing can be divided by a factor of 0, so there the rule does not apply.
    """
    y = op.Conv(x, w, b, **WINDOW)
    scaled = op.Conv(x, w * number(s), b * number(s), **WINDOW)
    return (
        y * op.HardSigmoid(y, alpha=alpha, beta=beta) * number(s),
        scaled * op.HardSigmoid(scaled, alpha=alpha / s, beta=beta),
    )


@with_bias("b")
def add_before_conv(x, w: Constant, b: Constant, c: Constant, pads: Attribute):
    window = {**PLAIN, "pads": pads}
    axes = numbers(1, w.rank)
    return (
        op.Conv(x + c, w, b, **window),
        op.Conv(x, w, b + op.ReduceSum(w * inner(c, w), axes=axes, keepdims=0), **window),
        along_channels(c, w),
        pads == repeat(0, 2 * (w.rank - 2)),
    )


# Transposed convolutions, whose weight has its input channels first.


@with_bias("c")
def batch_norm_into_conv_transpose(
    x, w: Constant, c: Constant, s: Constant, b: Constant, m: Constant, v: Constant
):
    k = factor(s, v)
    return (
        normalized(op.ConvTranspose(x, w, c, **UPWARDS), s, b, m, v),
        op.ConvTranspose(x, w * inner(k, w), c * k + (b - m * k), **UPWARDS),
    )


@with_bias("b")
def mul_into_conv_transpose(x, w: Constant, b: Constant, s: Constant):
    return (
        op.ConvTranspose(x, w, b, **UPWARDS) * s,
        op.ConvTranspose(x, w * inner(s, w), b * flat(s), **UPWARDS),
        along_channels(s, w),
    )


@rules
def sums_with_transposed_convs(x, w, b: Constant, c: Constant):
    """What is added to a convolution becomes its bias."""
    return {
        "add_into_conv_transpose": (
            op.ConvTranspose(x, w, **UPWARDS) + c,
            op.ConvTranspose(x, w, flat(c), **UPWARDS),
            c.dim(1 - w.rank) == c.size,
        ),
        "add_into_conv_transpose_with_bias": (
            op.ConvTranspose(x, w, b, **UPWARDS) + c,
            op.ConvTranspose(x, w, b + flat(c), **UPWARDS),
            along_channels(c, w),
        ),
    }


@rules
def matrices(x, w: Constant, b: Constant, s: Constant, c: Constant):
    """Constants move into the matrix that they are multiplied with, or past it."""
    return {
        "mul_into_matrix": ((x @ w) * s, x @ (w * row(s)), along_last(s)),
        "mul_before_matrix": ((x * s) @ w, x @ (w * column(s)), along_last(s)),
        "add_before_matrix": ((x + c) @ w, x @ w + row(c) @ w, c.dim(-1) == c.size),
        "mul_into_linear": (
            (x @ w + b) * s,
            x @ (w * row(s)) + b * s,
            along_last(s),
            w.rank > 1,
        ),
    }


@rules
def products_with_bias(x, w: Constant, b: Constant, s: Constant, alpha: Attribute, rows: Attribute):
    """The same for Gemm, whose matrix may be transposed."""
    attributes = {"alpha": alpha, "transA": rows}
    return {
        "mul_into_gemm": (
            op.Gemm(x, w, b, **attributes) * s,
            op.Gemm(x, w * row(s), b * s, **attributes),
            along_last(s),
        ),
        "mul_into_transposed_gemm": (
            op.Gemm(x, w, b, **attributes, transB=1) * s,
            op.Gemm(x, w * column(s), b * s, **attributes, transB=1),
            along_last(s),
        ),
    }


@rules
def sums_with_gemm(x, w, b, c):
    """What is added to a product becomes its bias."""
    return {
        "add_into_gemm": (op.Gemm(x, w, b, **GEMM) + c, op.Gemm(x, w, b + c, **GEMM)),
        "add_to_gemm": (op.Gemm(x, w, **GEMM) + c, op.Gemm(x, w, c, **GEMM)),
    }
