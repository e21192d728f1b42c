"""The numbers of operators, by which policies know them: they never change.

A policy that was saved before an operator was added knows the numbers below that operator's. So a
new operator gets the next number, and one that goes keeps its own, which no other gets again.
"""

from __future__ import annotations

from collections.abc import Mapping

from environments.tensor_graphs.graph.nodes import CONSTANT, INPUT, OPAQUE

NUMBERS: Mapping[str, int] = {
    INPUT: 1, CONSTANT: 2, OPAQUE: 3,
    "Abs": 4, "Add": 5, "And": 6, "ArgMax": 7, "ArgMin": 8, "AveragePool": 9,
    "BatchNormalization": 10, "Cast": 11, "Ceil": 12, "Clip": 13, "Concat": 14, "Conv": 15,
    "ConvTranspose": 16, "Cos": 17, "DepthToSpace": 18, "Div": 19, "Elu": 20, "Equal": 21,
    "Erf": 22, "Exp": 23, "Expand": 24, "Floor": 25, "Gather": 26, "Gelu": 27, "Gemm": 28,
    "GlobalAveragePool": 29, "GlobalMaxPool": 30, "Greater": 31, "GreaterOrEqual": 32,
    "HardSigmoid": 33, "HardSwish": 34, "InstanceNormalization": 35, "LayerNormalization": 36,
    "LeakyRelu": 37, "Less": 38, "LessOrEqual": 39, "Log": 40, "LogSoftmax": 41, "MatMul": 42,
    "Max": 43, "MaxPool": 44, "Min": 45, "Mish": 46, "Mul": 47, "Neg": 48, "Not": 49, "Or": 50,
    "PRelu": 51, "Pad": 52, "Pow": 53, "Reciprocal": 54, "ReduceL2": 55, "ReduceMax": 56,
    "ReduceMean": 57, "ReduceMin": 58, "ReduceProd": 59, "ReduceSum": 60, "ReduceSumSquare": 61,
    "Relu": 62, "Reshape": 63, "Round": 64, "Selu": 65, "Shape": 66, "Sigmoid": 67, "Sign": 68,
    "Sin": 69, "Slice": 70, "Softmax": 71, "Softplus": 72, "Softsign": 73, "SpaceToDepth": 74,
    "Split": 75, "Sqrt": 76, "Sub": 77, "Tanh": 78, "Tile": 79, "Transpose": 80, "Where": 81,
    "Xor": 82, "BiasGelu": 83, "ErfGelu": 84, "FastGelu": 85, "FusedMatMul": 86,
    "MultiHeadAttention": 87, "QuickGelu": 88, "SkipLayerNormalization": 89,
    "SkipLayerNormalizationAndSum": 90, "Attention": 91, "Sum": 92,
}  # fmt: skip
"""Numbers by name, without gaps. Number 0 is that of the padding of observations."""
