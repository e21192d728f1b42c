"""Ways in which exporters write the same mathematics, drawn at random."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Option = TypeVar("Option")

FIRST_OPSET_WITH_LAYER_NORM = 17
FIRST_OPSET_WITH_GELU = 20


def pick(random: np.random.Generator, options: Sequence[Option]) -> Option:
    """Draw one of some options; those that are listed twice are twice as likely."""
    return options[int(random.integers(len(options)))]


@dataclasses.dataclass(frozen=True)
class Spelling:
    """How one exporter writes what can be written in several ways.

    Attributes:
      constants: "weights" or "nodes".
      bias_first: whether a constant is the first operand of Add and Mul.
      linear: a linear layer is a "matmul" with an Add, a "gemm" between two Reshapes, or
        "transposed": a MatMul with a matrix that a node transposes.
      open_batch: whether the batch is -1 in the shapes of Reshape.
      divides: whether a scale is a Div by its inverse instead of a Mul.
      layer_norm: one "operator", or a "chain" of them.
      square: "Pow" with 2, or "Mul" of a value with itself.
      deviation: a value is divided by a deviation by "Div", or by Mul with its "Reciprocal".
      gelu: one "operator", by "tanh", or by Erf with the factor 1/2 "first", "inside" or "last".
      hard_swish: one "operator", with a "HardSigmoid", or with a "Clip".
      projections: query, key and value have "three" matrices, or one whose product is divided by
        "Split" or, after one Transpose, by "Gather".
      scaled: what attention scales: "query", "key", "scores", or "both" query and key.
      key: it is transposed "once", or "twice": to heads, and for the product.
      folded: whether batch normalisations are already folded into their convolutions.
      conv_bias: whether a convolution before a batch normalisation has a bias.
      mean: the mean of an image is a "GlobalAveragePool" or a "ReduceMean".
      flatten: an image of one pixel is flattened by "Flatten", "Reshape" or "Squeeze".
      leftovers: share of the layers that are followed by an Identity or a Dropout.
    """

    constants: str
    bias_first: bool
    linear: str
    open_batch: bool
    divides: bool
    layer_norm: str
    square: str
    deviation: str
    gelu: str
    hard_swish: str
    projections: str
    scaled: str
    key: str
    folded: bool
    conv_bias: bool
    mean: str
    flatten: str
    leftovers: float

    @classmethod
    def draw(cls, random: np.random.Generator, opset: int) -> Spelling:
        """Draw a spelling with the operators of a version of ONNX."""
        gelus = ["first", "inside", "last", "tanh"]
        return cls(
            constants=pick(random, ["weights", "weights", "nodes"]),
            bias_first=pick(random, [True, False]),
            linear=pick(random, ["matmul", "matmul", "gemm", "transposed"]),
            open_batch=pick(random, [True, False]),
            divides=pick(random, [True, False]),
            layer_norm="chain" if opset < FIRST_OPSET_WITH_LAYER_NORM else "operator",
            square=pick(random, ["Pow", "Mul"]),
            deviation=pick(random, ["Div", "Div", "Reciprocal"]),
            gelu="operator" if opset >= FIRST_OPSET_WITH_GELU else pick(random, gelus),
            hard_swish=pick(random, ["operator", "HardSigmoid", "Clip"]),
            projections=pick(random, ["three", "three", "Split", "Gather"]),
            scaled=pick(random, ["query", "key", "scores", "both"]),
            key=pick(random, ["once", "twice"]),
            folded=pick(random, [True, False, False]),
            conv_bias=pick(random, [True, False, False]),
            mean=pick(random, ["GlobalAveragePool", "GlobalAveragePool", "ReduceMean"]),
            flatten=pick(random, ["Flatten", "Reshape", "Squeeze"]),
            leftovers=pick(random, [0.0, 0.0, 0.3]),
        )
