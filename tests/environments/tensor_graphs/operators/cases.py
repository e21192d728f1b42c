"""Examples of every operator: shapes of the inputs and attributes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from environments.tensor_graphs.graph.nodes import TensorType


class Case(NamedTuple):
    """One node.

    Attributes:
      op: operator.
      inputs: shapes, of float32 where no type stands before them; "positive" are those of numbers
        between 1/2 and 3/2, "index" indices below 3.
      attributes: as a caller of `building.add` gives them.
    """

    op: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any] = {}

    def __str__(self) -> str:
        shapes = " ".join(str(shape).replace(" ", "") for shape in self.inputs)
        return f"{self.op} {shapes} {self.attributes or ''}"

    def arrays(self, seed: int = 0) -> list[np.ndarray]:
        """Inputs of that shape."""
        rng = np.random.default_rng(seed)
        return [np.asarray(_array(rng, description)) for description in self.inputs]


def _array(rng: np.random.Generator, spec: Any) -> np.ndarray:
    kind, shape = spec if spec and isinstance(spec[0], str) else ("float32", spec)
    if kind == "positive":
        return np.array(rng.uniform(0.5, 1.5, shape)).astype(np.float32)
    if kind == "index":
        return rng.integers(-3, 3, shape)
    if kind == "bool":
        return rng.random(shape) < 0.5
    if kind.startswith("int"):
        return np.array(rng.choice([-9, -4, -3, -1, 1, 2, 5, 7], shape)).astype(kind)
    return np.array(2 * rng.standard_normal(shape)).astype(kind)


def types_of(arrays: list[np.ndarray]) -> tuple[TensorType, ...]:
    """Types of arrays."""
    return tuple(TensorType(array.dtype.name, array.shape) for array in arrays)


X, IMAGE = (2, 3, 4), (2, 4, 7, 6)
_PLAIN = "Abs Cos Erf Exp HardSwish Mish Neg Relu Sigmoid Sign Sin Softplus Softsign Tanh"
_BINARY = "Add Sub Mul Div Max Min Equal Greater GreaterOrEqual Less LessOrEqual"

UNARY = [
    *(Case(op, (X,)) for op in (*_PLAIN.split(), "Ceil", "Floor", "Round", "Gelu", "Clip")),
    *(Case(op, ((),)) for op in ("Neg", "Relu", "Exp", "Reciprocal", "HardSwish", "Elu")),
    *(Case(op, (("positive", X),)) for op in ("Log", "Sqrt", "Reciprocal")),
    *(Case(op, (("int32", X),)) for op in ("Neg", "Abs", "Sign", "Relu")),
    *(Case(op, (("float64", X),)) for op in ("Relu", "Tanh", "Clip", "Sigmoid")),
    Case("Not", (("bool", X),)),
    *(Case("Cast", (X,), {"to": to}) for to in ("float64", "int64", "bool", "float16")),
    Case("Cast", (("int64", X),), {"to": "float32"}),
    Case("Clip", (X,), {"min": -0.5, "max": 1}),
    Case("Clip", (X,), {"max": 0.3}),
    Case("Elu", (X,), {"alpha": 0.7}),
    Case("Gelu", (X,), {"approximate": "tanh"}),
    Case("HardSigmoid", (X,), {"alpha": 0.3, "beta": 0.4}),
    Case("LeakyRelu", (X,), {"alpha": -0.3}),
    Case("Selu", (X,)),
    Case("Selu", (X,), {"alpha": 2.0, "gamma": 0.5}),
]
BINARY = [
    *(Case(op, (X, X)) for op in _BINARY.split()),
    *(Case(op, (X, (3, 1))) for op in _BINARY.split()),
    *(Case(op, ((4,), X)) for op in ("Add", "Sub", "Sum", "PRelu", "Max")),
    *(Case(op, (("int32", X), ("int32", (4,)))) for op in _BINARY.split()),
    *(Case(op, ((), ())) for op in ("Add", "Div", "Max")),
    *(Case(op, (("bool", X), ("bool", (4,)))) for op in ("And", "Or", "Xor", "Equal")),
    Case("PRelu", (X, (3, 1))),
    Case("Pow", (("positive", X), (4,))),
    Case("Pow", (X, ("int64", ()))),
    Case("Where", (("bool", (3, 1)), X, (4,))),
    Case("Where", (("bool", X), ("int64", ()), ("int64", X))),
]
PRODUCTS = [
    Case("MatMul", ((3, 4), (4, 5))),
    Case("MatMul", ((2, 3, 4), (4, 5))),
    Case("MatMul", ((2, 1, 3, 4), (6, 4, 5))),
    Case("MatMul", ((4,), (4, 5))),
    Case("MatMul", ((2, 3, 4), (4,))),
    Case("MatMul", ((4,), (4,))),
    Case("Gemm", ((3, 4), (4, 5))),
    Case("Gemm", ((3, 4), (4, 5), (5,)), {"alpha": 0.5, "beta": 2.0}),
    Case("Gemm", ((4, 3), (4, 5), (3, 1)), {"transA": 1}),
    Case("Gemm", ((3, 4), (5, 4), ()), {"transB": 1, "alpha": 3}),
    Case("Gemm", ((4, 3), (5, 4), (3, 5)), {"transA": 1, "transB": 1}),
]
CONVOLUTIONS = [
    Case("Conv", (IMAGE, (5, 4, 3, 3))),
    Case("Conv", (IMAGE, (5, 4, 3, 2), (5,)), {"pads": (1, 0, 2, 1), "strides": (2, 3)}),
    Case("Conv", (IMAGE, (6, 2, 3, 3)), {"group": 2, "dilations": (2, 1)}),
    Case("Conv", (IMAGE, (8, 1, 3, 3), (8,)), {"group": 4, "pads": (1, 1, 1, 1)}),
    Case(
        "Conv", ((2, 4, 9), (6, 4, 3), (6,)), {"pads": (2, 1), "strides": (2,), "dilations": (2,)}
    ),
    Case(
        "Conv", ((1, 2, 4, 5, 4), (3, 2, 2, 3, 1)),
        {"pads": (1, 0, 0, 0, 1, 2), "strides": (1, 2, 1), "dilations": (1, 1, 1)},
    ),
    Case("ConvTranspose", (IMAGE, (4, 5, 3, 3))),
    Case(
        "ConvTranspose", (IMAGE, (4, 2, 3, 2), (4,)),
        {"group": 2, "strides": (2, 3), "pads": (1, 0, 2, 1), "output_padding": (1, 2)},
    ),
    Case("ConvTranspose", (IMAGE, (4, 3, 2, 3)), {"dilations": (2, 2), "pads": (1, 3, 0, 2)}),
    Case("ConvTranspose", (IMAGE, (4, 3, 1, 1)), {"strides": (2, 2), "output_padding": (1, 1)}),
]  # fmt: skip
POOLS = [
    *(
        Case(op, (IMAGE,), attributes)
        for op in ("MaxPool", "AveragePool")
        for attributes in (
            {"kernel_shape": (2, 2)},
            {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)},
            {"kernel_shape": (3, 2), "strides": (2, 3), "pads": (2, 0, 1, 1)},
            {"kernel_shape": (3, 2), "strides": (2, 3), "ceil_mode": 1},
            {"kernel_shape": (2, 2), "strides": (3, 3), "pads": (1, 1, 1, 1), "ceil_mode": 1},
            {"kernel_shape": (3, 3), "dilations": (2, 2), "pads": (1, 1, 1, 1)},
        )
    ),
    Case(
        "AveragePool", (IMAGE,),
        {"kernel_shape": (3, 2), "pads": (1, 1, 2, 0), "strides": (2, 2), "count_include_pad": 1},
    ),
    Case(
        "MaxPool", ((2, 3, 9),),
        {"kernel_shape": (3,), "pads": (1, 1), "strides": (2,), "dilations": (1,)},
    ),
    *(Case(op, (IMAGE,)) for op in ("GlobalAveragePool", "GlobalMaxPool")),
    Case("GlobalAveragePool", ((2, 3, 5),)),
]  # fmt: skip
NORMALIZATIONS = [
    Case("BatchNormalization", (IMAGE, (4,), (4,), (4,), ("positive", (4,)))),
    Case("BatchNormalization", ((5, 3), (3,), (3,), (3,), ("positive", (3,))), {"epsilon": 0.01}),
    Case("InstanceNormalization", (IMAGE, (4,), (4,))),
    Case("InstanceNormalization", ((2, 3, 5), (3,), (3,)), {"epsilon": 0.1}),
    Case("LayerNormalization", (X, (4,)), {"axis": -1}),
    Case("LayerNormalization", (X, (4,), (4,)), {"axis": 2, "epsilon": 1e-3}),
    Case("LayerNormalization", (X, (3, 4), (3, 4)), {"axis": 1}),
    *(Case(op, (X,), {"axis": axis}) for op in ("Softmax", "LogSoftmax") for axis in (-1, 1)),
]
REDUCTIONS = [
    *(
        Case(f"Reduce{kind}", (X,), attributes)
        for kind in ("L2", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
        for attributes in ({"axes": (-1,)}, {"axes": (2, 0), "keepdims": 0}, {"axes": (0, 1, 2)})
    ),
    *(Case(f"Reduce{kind}", (("int32", X),), {"axes": (1,)}) for kind in ("Max", "Sum", "Prod")),
    *(
        Case(op, (X,), attributes)
        for op in ("ArgMax", "ArgMin")
        for attributes in ({}, {"axis": -1, "keepdims": 0})
    ),
]
LAYOUT = [
    *(Case("Reshape", (X,), {"shape": shape}) for shape in ((6, 4), (0, -1), (2, 1, 12), (-1,))),
    Case("Reshape", ((),), {"shape": (1, 1)}),
    Case("Transpose", (X,), {"perm": (2, 0, 1)}),
    Case("Transpose", (("int64", X),), {"perm": (0, 2, 1)}),
    Case("Concat", (X, (2, 1, 4), (2, 2, 4)), {"axis": -2}),
    Case("Concat", (X,), {"axis": 0}),
    Case("Split", (X,), {"axis": -1, "split": (1, 3)}),
    Case("Split", (X,), {"split": (1, 1)}),
    Case("Split", (X,), {"axis": 1, "split": (3,)}),
    Case("Slice", (X,), {"starts": (1,), "ends": (2**63 - 1,), "axes": (-1,)}),
    Case("Slice", (X,), {"starts": (-3, 0), "ends": (-1, 3), "axes": (2, 1), "steps": (2, 2)}),
    Case("Slice", (X,), {"starts": (0, 1), "ends": (1, 1)}),
    Case("Slice", (X,), {"starts": (0,), "ends": (9,)}),
    Case("Pad", (X,), {"pads": (0, 1, 2, 1, 0, 0)}),
    Case("Pad", (X,), {"pads": (0, 1, 2, 1, 0, 0), "value": 0.5}),
    *(
        Case("Pad", (X,), {"pads": (0, 1, 2, 1, 0, 3), "mode": mode})
        for mode in ("edge", "reflect")
    ),
    Case("Expand", ((3, 1),), {"shape": (2, 1, 4)}),
    Case("Expand", ((1, 4),), {"shape": (5, 1)}),
    Case("Tile", (X,), {"repeats": (1, 2, 3)}),
    Case("Gather", (X, ("index", (2, 5))), {"axis": 1}),
    Case("Gather", ((3, 4), ("index", ()))),
    Case("Gather", (X, ("index", (1,))), {"axis": -1}),
    Case("Shape", (X,)),
    Case("Shape", (X,), {"start": -2, "end": -1}),
    *(Case("DepthToSpace", ((2, 8, 3, 2),), {"blocksize": 2, "mode": m}) for m in ("DCR", "CRD")),
    Case("SpaceToDepth", ((2, 3, 4, 6),), {"blocksize": 2}),
]
CONTRIB = [
    Case("Attention", ((2, 3, 5), (5, 12), (12,)), {"num_heads": 2, "scale": 0.5}),
    Case("Attention", ((2, 3, 5), (5, 12), (12,), (2, 1, 3, 3)), {"num_heads": 4, "scale": 0.7}),
    Case("BiasGelu", (X, (4,))),
    Case("ErfGelu", (X,)),
    Case("FastGelu", (X,)),
    Case("FastGelu", (X, (4,))),
    Case("FusedMatMul", (X, (2, 4, 5)), {"alpha": 0.5}),
    Case("FusedMatMul", ((2, 4, 3), (2, 5, 4)), {"transA": 1, "transB": 1, "alpha": -2.0}),
    Case("MultiHeadAttention", ((2, 3, 8), (2, 5, 8), (2, 5, 8)), {"num_heads": 2, "scale": 0.5}),
    Case(
        "MultiHeadAttention",
        ((2, 3, 8), (2, 5, 8), (2, 5, 8), (1, 4, 3, 5)),
        {"num_heads": 4, "scale": 0.3},
    ),
    Case("QuickGelu", (X,), {"alpha": 1.5}),
    *(
        Case(f"SkipLayerNormalization{kind}", (X, X, *vectors), {"epsilon": 1e-3})
        for kind in ("", "AndSum")
        for vectors in (((4,),), ((4,), (4,)))
    ),
]

ALL = [
    *UNARY, *BINARY, *PRODUCTS, *CONVOLUTIONS, *POOLS,
    *NORMALIZATIONS, *REDUCTIONS, *LAYOUT, *CONTRIB,
]  # fmt: skip
