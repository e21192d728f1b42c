"""Rules that turn a chain of operators into the one operator that newer versions of ONNX have.

Others onnxruntime runs as one kernel by itself, if they are written in the way that it recognises.
And one that it recognises is better not: on a CPU its SkipLayerNormalization takes three times as
long as the sum and the normalisation (1.31: 121 us where they take 20 and 27, for 64 rows of 256).

The model's `opset` tells which operators exist. No rule changes a model's opset.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

import numpy as np

from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    attributes,
    call,
    make_rule,
    no,
    only_where,
    op,
    rules,
    tensors,
)
from environments.tensor_graphs.rules.language.rule import FusedChain
from environments.tensor_graphs.rules.library.parts import (
    ROOT_OF_2,
    ROOT_OF_HALF,
    cubes,
    half_products,
    number,
)
from environments.tensor_graphs.rules.library.transformers import gelu, layer_norm

_OPSET = call("opset")
_SIXTH = float(np.float32(1 / 6))
# SkipLayerNormalization takes 4.5 times as long as LayerNormalization for 64 rows of 256, and 7.6
# times for 128 of 768. With so much a search takes normalisations apart to be rid of two at once,
# and ends worse (BERT-mini: 0.91 of the model's time; 0.90 with this).
_SKIP_SLOWNESS = 3.5

SLOWNESS = {
    "SkipLayerNormalization": _SKIP_SLOWNESS,
    "SkipLayerNormalizationAndSum": _SKIP_SLOWNESS,
}
"""How many times longer an operator takes on a CPU than others that do as much."""


@rules
def newer_operators(x, g, b, epsilon: Attribute, axis: Attribute):
    """Chains of operators that have a name of their own."""
    return {
        "gelu_chain": (gelu(x), op.Gelu(x), only_where(_OPSET >= 20)),
        "gelu_is_a_chain": (op.Gelu(x), gelu(x)),
        "layer_norm_chain": (
            layer_norm(x, g, b, epsilon, axis),
            op.LayerNormalization(x, g, b, axis=-1, epsilon=epsilon),
            axis == x.rank - 1,
            only_where(_OPSET >= 17),
        ),
        # HardSwish, as exporters write it below opset 14.
        "swish_of_six": (
            x * op.Clip(x + 3.0, min=0.0, max=6.0) / 6.0,
            op.HardSwish(x),
            only_where(_OPSET >= 14),
        ),
        "swish_of_hard_sigmoid": (
            x * op.HardSigmoid(x, alpha=_SIXTH, beta=0.5),
            op.HardSwish(x),
            only_where(_OPSET >= 14),
        ),
    }


@rules
def chains_that_onnxruntime_knows(x, y, axes: Attribute):
    """Other ways to write what onnxruntime runs as one kernel, where it is written its way."""
    by_product = half_products(x, op.Erf(x * ROOT_OF_HALF) + 1.0)
    by_quotient = half_products(x, op.Erf(x / ROOT_OF_2) + 1.0)
    return {
        "gelu_by_product": (by_product["last"], gelu(x)),
        "gelu_of_half_by_product": (by_product["first"], gelu(x)),
        "gelu_of_halved_sum_by_product": (by_product["inside"], gelu(x)),
        "gelu_of_halved_sum": (by_quotient["inside"], gelu(x)),
        "mean_of_square": (
            op.ReduceMean(x * x, axes=axes),
            op.ReduceMean(x**2.0, axes=axes),
        ),
        "product_with_reciprocal": (x * op.Reciprocal(y), x / y),
    }


@rules
def gelu_by_sigmoid(x, u, c: Attribute, k: Attribute):
    """Gelu by tanh, x (1 + tanh(k (x + c x^3))) / 2, which onnxruntime does not know on a CPU.

    (1 + tanh u) / 2 is sigmoid 2u.
    """
    factored = x * (x * x * number(c * k) + number(k))
    halves = half_products(x, op.Tanh(u) + 1.0)
    return {
        **{
            f"tanh_is_sigmoid_half_{place}": (product, x * op.Sigmoid(u * 2.0))
            for place, product in halves.items()
        },
        **{
            f"cube_by_{name}_factored": ((x + cube * number(c)) * number(k), factored)
            for name, cube in cubes(x).items()
        },
    }


def _with_sums(x, y, g, b, e, axis, epsilon):
    """Return layer normalisations of x + y by name, each with it as a Sum, and conditions."""
    parts = {
        "": lambda total: op.LayerNormalization(total, g, b, axis=axis, epsilon=epsilon),
        "_chain": lambda total: layer_norm(total, g, b, e, axis),
    }
    vectors = g.rank == 1, b.rank == 1, e.size == 1
    return {
        name: (
            norm(x + y),
            norm(op.Sum(x, y)),
            *(vectors if name else ()),
            only_where(axis == x.rank - 1),
            only_where(x.rank == 3),
            only_where(x.shape == y.shape),
        )
        for name, norm in parts.items()
    }


@rules
def sums_that_stay(x, y, g, b, e, axis: Attribute, epsilon: Attribute):
    """Sums that onnxruntime would fuse with a layer normalisation into a slower kernel."""
    sums = _with_sums(x, y, g, b, e, axis, epsilon)
    return {f"sum_before_layer_norm{name}": parts for name, parts in sums.items()}


def fused_chains() -> tuple[FusedChain, ...]:
    """Return the chains; where two overlap, onnxruntime runs the one that comes first."""
    x, y, g, b, e = tensors("x y g b e")
    a, axis, epsilon = attributes("a axis epsilon").values()
    by_quotient = half_products(x, op.Erf(x / ROOT_OF_2) + 1.0)
    deviation = op.Sqrt(op.ReduceMean(x**2.0, axes=(axis,)) + e)
    norm = layer_norm(x, g, b, e, axis)
    is_last = axis == x.rank - 1
    chains = {
        "gelu": (by_quotient["last"], op.ErfGelu(x)),
        "gelu_of_half": (by_quotient["first"], op.ErfGelu(x)),
        "quick_gelu": (x * op.Sigmoid(x * a), op.QuickGelu(x, alpha=a)),
        "silu": (x * op.Sigmoid(x), op.QuickGelu(x, alpha=1.0)),
        "layer_norm": (norm, op.LayerNormalization(x, g, b, axis=axis, epsilon=1e-5), is_last),
        # No operator here says this; a product of the same type stands for it.
        "rms_norm": (x / deviation * g, x * g, is_last),
        "rms_norm_by_inverse": (x * (1.0 / deviation) * g, x * g, is_last),
    }
    slow = [
        FusedChain(make_rule(f"fused_skip_layer_norm{name}", *parts), _SKIP_SLOWNESS)
        for name, parts in _with_sums(x, y, g, b, e, axis, epsilon).items()
    ]
    plain = [FusedChain(make_rule(f"fused_{name}", *parts)) for name, parts in chains.items()]
    return (*slow, *plain)


@rules
def cut_sums(x, y, k: Constant, shift: Attribute, top: Attribute):
    """A sum, cut off below at 0 and above, is HardSigmoid but for a factor.

    Exporters write HardSwish so below opset 14, and leave the factor to a Div or a Mul, which may
    hold another constant too.
    """
    cut = op.Clip(x + number(shift), min=0.0, max=top)
    curve = op.HardSigmoid(x, alpha=1 / top, beta=shift / top)
    scale, is_positive = k * number(top), top > 0.0
    return {
        "cut_sum_is_hard_sigmoid": (cut / number(top), curve, is_positive),
        "scaled_cut_sum_is_hard_sigmoid": (
            cut * k,
            curve * scale,
            is_positive,
            only_where(no(top == 1.0)),
        ),
        "product_with_cut_sum": (y * cut / number(top), y * curve, is_positive),
        "scaled_product_with_cut_sum": (y * cut * k, y * curve * scale, is_positive),
        "cut_sum_to_one": (
            op.Clip(x + number(shift), min=0.0, max=1.0),
            op.HardSigmoid(x, alpha=1.0, beta=shift),
        ),
    }
