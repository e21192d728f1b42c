"""Ways in which exporters write the same mathematics, drawn at random."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

Option = TypeVar("Option")

_OPTIONS: Mapping[str, Sequence[Any]] = {
    "constants": ("weights", "weights", "nodes"),
    # Whether a constant is the first operand of Add and Mul.
    "bias_first": (True, False),
    # MatMul and Add, Gemm between two Reshapes, or MatMul with a matrix that a node transposes.
    "linear": ("matmul", "matmul", "gemm", "transposed"),
    # Whether the batch is -1 in the shapes of Reshape.
    "open_batch": (True, False),
    # Whether a scale is a Div by its inverse instead of a Mul.
    "divides": (True, False),
    "layer_norm": ("operator", "chain"),
    # "Pow" with 2, or "Mul" of a value with itself.
    "square": ("Pow", "Mul"),
    # How to divide by a deviation.
    "deviation": ("Div", "Div", "Reciprocal"),
    # By Erf with the factor 1/2 at one of three places, or by Tanh.
    "gelu": ("first", "inside", "last", "tanh"),
    "hard_swish": ("operator", "HardSigmoid", "Clip"),
    # Query, key and value have three matrices, or one whose product is divided by Split or, after
    # one Transpose, by Gather.
    "projections": ("three", "three", "Split", "Gather"),
    # What attention scales: "both" are query and key.
    "scaled": ("query", "key", "scores", "both"),
    # The key is transposed once, or twice: to heads, and for the product.
    "key": ("once", "twice"),
    # Whether batch normalisations are already folded into their convolutions.
    "folded": (True, False, False),
    # Whether a convolution before a batch normalisation has a bias.
    "conv_bias": (True, False, False),
    "mean": ("GlobalAveragePool", "GlobalAveragePool", "ReduceMean"),
    # How an image of one pixel is flattened.
    "flatten": ("Flatten", "Reshape", "Squeeze"),
    # Share of the layers that are followed by an Identity or a Dropout.
    "leftovers": (0.0, 0.0, 0.3),
}

FIRST_OPSET_WITH_LAYER_NORM = 17
FIRST_OPSET_WITH_GELU = 20


def pick(random: np.random.Generator, options: Sequence[Option]) -> Option:
    """Draw one of some options; those that are listed twice are twice as likely."""
    return options[int(random.integers(len(options)))]


def draw_spelling(random: np.random.Generator, opset: int) -> types.SimpleNamespace:
    """Draw how an exporter for a version of ONNX writes what can be written in several ways.

    Returns:
      A namespace with one of the options of each of `_OPTIONS`.
    """
    options = dict(_OPTIONS)
    # Drawing one of one takes no random number.
    options["layer_norm"] = ("chain" if opset < FIRST_OPSET_WITH_LAYER_NORM else "operator",)
    if opset >= FIRST_OPSET_WITH_GELU:
        options["gelu"] = ("operator",)
    return types.SimpleNamespace(**{name: pick(random, those) for name, those in options.items()})
