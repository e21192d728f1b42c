"""Layers of models, in one of the ways in which exporters write the same mathematics."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from environments.tensor_graphs.models.builder import Builder

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


_FIRST_OPSET_WITH_AXES_AS_INPUT = 18
ACTIVATIONS = ("relu", "gelu", "silu", "relu6", "hard_swish", "tanh")


class Exporter:
    """Adds layers to a model in the spelling of one exporter, which is drawn.

    `rows` are the sizes that come before the last one in the inputs of linear layers, such as the
    number of tokens; without the batch.
    """

    def __init__(self, build: Builder, random: np.random.Generator, *rows: int) -> None:
        self.build = build
        self.spelling = draw_spelling(random, build.opset)
        self._random = random
        batch = -1 if self.spelling.open_batch or isinstance(build.batch, str) else build.batch
        self.rows = (batch, *rows)
        build.constant_nodes = self.spelling.constants == "nodes"

    def commuted(self, op: str, x: str, constant: str) -> str:
        """Add a commutative operator of a value and a constant, either way round."""
        operands = (constant, x) if self.spelling.bias_first else (x, constant)
        return self.build.node(op, *operands)

    def scaled(self, x: str, factor: float) -> str:
        """Multiply a value by a number."""
        if self.spelling.divides:
            return self.build.node("Div", x, self.build.scalar(1 / factor))
        return self.commuted("Mul", x, self.build.scalar(factor))

    def with_leftovers(self, x: str) -> str:
        """Now and then, add what training left over: an Identity, or a Dropout."""
        if self._random.random() >= self.spelling.leftovers:
            return x
        return self.build.node(pick(self._random, ["Identity", "Dropout"]), x)

    def mean(self, x: str, *axes: int, keepdims: int = 1) -> str:
        """Add the mean over some axes."""
        if self.build.opset >= _FIRST_OPSET_WITH_AXES_AS_INPUT:
            return self.build.node("ReduceMean", x, self.build.integers(*axes), keepdims=keepdims)
        return self.build.node("ReduceMean", x, axes=axes, keepdims=keepdims)

    def linear(self, x: str, size_in: int, size_out: int, name: str) -> str:
        """Add a linear layer: [*rows, size_in] -> [*rows, size_out]."""
        build, kind = self.build, self.spelling.linear
        turned = kind == "transposed" or (kind == "gemm" and self.spelling.bias_first)
        shape = (size_out, size_in) if turned else (size_in, size_out)
        weight = build.normal(f"{name}.weight", shape, size_in**-0.5)
        bias = build.normal(f"{name}.bias", [size_out], 0.1)
        if kind == "gemm":
            is_flat = len(self.rows) == 1
            x = x if is_flat else build.node("Reshape", x, build.integers(-1, size_in))
            x = build.node("Gemm", x, weight, bias, transB=int(turned))
            return x if is_flat else self.reshaped(x, size_out)
        if turned:
            weight = build.node("Transpose", weight, perm=[1, 0])
        return self.commuted("Add", build.node("MatMul", x, weight), bias)

    def reshaped(self, x: str, *sizes: int) -> str:
        """Reshape a value to [*rows, *sizes]."""
        return self.build.node("Reshape", x, self.build.integers(*self.rows, *sizes))

    def norm(self, x: str, size: int, rms: bool = False) -> str:
        """Add a layer normalisation, or one by the root mean square alone, over the last axis."""
        build = self.build
        scale = build.normal("norm.weight", [size], 0.1, 1)
        if not rms:
            bias = build.normal("norm.bias", [size], 0.1)
            if self.spelling.layer_norm == "operator":
                return build.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)
            x = build.node("Sub", x, self.mean(x, -1))
        variance = build.node("Add", self.mean(self._square(x), -1), build.scalar(1e-5))
        deviation = build.node("Sqrt", variance)
        if self.spelling.deviation == "Div":
            x = build.node("Div", x, deviation)
        else:
            x = build.node("Mul", x, build.node("Reciprocal", deviation))
        x = self.commuted("Mul", x, scale)
        return x if rms else self.commuted("Add", x, bias)

    def activate(self, kind: str, x: str) -> str:
        """Add one of ACTIVATIONS."""
        build = self.build
        if kind == "gelu":
            return self._gelu(x)
        if kind == "silu":
            return build.node("Mul", x, build.node("Sigmoid", x))
        if kind == "relu6":
            return build.node("Clip", x, build.scalar(0), build.scalar(6))
        if kind == "hard_swish":
            return self._hard_swish(x)
        return build.node({"relu": "Relu", "tanh": "Tanh"}[kind], x)

    def _square(self, x: str) -> str:
        if self.spelling.square == "Pow":
            return self.build.node("Pow", x, self.build.scalar(2))
        return self.build.node("Mul", x, x)

    def _gelu(self, x: str) -> str:
        build, kind = self.build, self.spelling.gelu
        if kind == "operator":
            return build.node("Gelu", x)
        if kind == "tanh":
            cube = build.node("Mul", self._square(x), x)
            inner = build.node("Add", x, self.commuted("Mul", cube, build.scalar(0.044715)))
            curve = build.node("Tanh", self.scaled(inner, math.sqrt(2 / math.pi)))
        else:
            curve = build.node("Erf", self.scaled(x, math.sqrt(0.5)))
        curve = self.commuted("Add", curve, build.scalar(1))
        if kind == "inside":
            return build.node("Mul", x, self.commuted("Mul", curve, build.scalar(0.5)))
        if kind == "last":
            return self.commuted("Mul", build.node("Mul", x, curve), build.scalar(0.5))
        return build.node("Mul", self.commuted("Mul", x, build.scalar(0.5)), curve)

    def _hard_swish(self, x: str) -> str:
        build, kind = self.build, self.spelling.hard_swish
        if kind == "operator":
            return build.node("HardSwish", x)
        if kind == "HardSigmoid":
            return build.node("Mul", x, build.node("HardSigmoid", x, alpha=1 / 6, beta=0.5))
        shifted = self.commuted("Add", x, build.scalar(3))
        cut = build.node("Clip", shifted, build.scalar(0), build.scalar(6))
        return self.scaled(build.node("Mul", x, cut), 1 / 6)
