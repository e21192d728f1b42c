"""Rules that turn a chain of operators into the one operator that newer versions of ONNX have.

The model's `opset` tells which operators exist. No rule changes a model's opset.
"""

# ruff: noqa: D103 (a rule's code says what it does)
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

import numpy as np

from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    Quantity,
    Tensor,
    call,
    no,
    only_where,
    op,
    rule,
)
from environments.tensor_graphs.rules.library.parts import number
from environments.tensor_graphs.rules.library.transformers import gelu, layer_norm

_OPSET = call("opset")
_SIXTH = float(np.float32(1 / 6))


@rule
def gelu_chain(x):
    return gelu(x), op.Gelu(x), only_where(_OPSET >= 20)


@rule
def gelu_is_a_chain(x):
    return op.Gelu(x), gelu(x)


@rule
def layer_norm_chain(x, g, b, epsilon: Attribute, axis: Attribute):
    return (
        layer_norm(x, g, b, epsilon, axis),
        op.LayerNormalization(x, g, b, axis=-1, epsilon=epsilon),
        axis == x.rank - 1,
        only_where(_OPSET >= 17),
    )


@rule
def swish_of_six(x):
    """HardSwish, as exporters write it below opset 14."""
    return (
        x * op.Clip(x + 3.0, min=0.0, max=6.0) / 6.0,
        op.HardSwish(x),
        only_where(_OPSET >= 14),
    )


@rule
def swish_of_hard_sigmoid(x):
    return (
        x * op.HardSigmoid(x, alpha=_SIXTH, beta=0.5),
        op.HardSwish(x),
        only_where(_OPSET >= 14),
    )


# A sum, cut off below at 0 and above, is HardSigmoid but for a factor. Exporters write HardSwish so
# below opset 14, and leave the factor to a Div or a Mul, which may hold another constant too.


def _cut(x: Tensor, shift: Quantity, top: Quantity) -> Tensor:
    return op.Clip(x + number(shift), min=0.0, max=top)


def _hard_sigmoid(x: Tensor, shift: Quantity, top: Quantity) -> Tensor:
    return op.HardSigmoid(x, alpha=1 / top, beta=shift / top)


@rule
def cut_sum_is_hard_sigmoid(x, shift: Attribute, top: Attribute):
    return _cut(x, shift, top) / number(top), _hard_sigmoid(x, shift, top), top > 0.0


@rule
def scaled_cut_sum_is_hard_sigmoid(x, k: Constant, shift: Attribute, top: Attribute):
    return (
        _cut(x, shift, top) * k,
        _hard_sigmoid(x, shift, top) * (k * number(top)),
        top > 0.0,
        only_where(no(top == 1.0)),
    )


@rule
def product_with_cut_sum(x, y, shift: Attribute, top: Attribute):
    return (
        y * _cut(x, shift, top) / number(top),
        y * _hard_sigmoid(x, shift, top),
        top > 0.0,
    )


@rule
def scaled_product_with_cut_sum(x, y, k: Constant, shift: Attribute, top: Attribute):
    return (
        y * _cut(x, shift, top) * k,
        y * _hard_sigmoid(x, shift, top) * (k * number(top)),
        top > 0.0,
    )


@rule
def cut_sum_to_one(x, shift: Attribute):
    return (
        op.Clip(x + number(shift), min=0.0, max=1.0),
        op.HardSigmoid(x, alpha=1.0, beta=shift),
    )
