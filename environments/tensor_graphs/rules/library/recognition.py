"""Rules that turn a chain of operators into the one operator that newer versions of ONNX have.

The model's `opset` tells which operators exist. No rule changes a model's opset.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

import numpy as np

from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    call,
    no,
    only_where,
    op,
    rules,
)
from environments.tensor_graphs.rules.library.parts import number
from environments.tensor_graphs.rules.library.transformers import gelu, layer_norm

_OPSET = call("opset")
_SIXTH = float(np.float32(1 / 6))


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
