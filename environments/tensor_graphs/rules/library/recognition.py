"""Rules that turn a chain of operators into the one operator that newer versions of ONNX have.

The model's `opset` tells which operators exist. No rule changes a model's opset.
"""

# ruff: noqa: D103 (a rule's code says what it does)
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

import numpy as np

from environments.tensor_graphs.rules.language.notation import Attribute, call, only_where, op, rule
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
