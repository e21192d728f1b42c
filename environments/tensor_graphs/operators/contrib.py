"""Operators of onnxruntime's own domain, com.microsoft, that its CPU provider has.

No other runtime has them, so only the rules of `rules.library.contrib` make them. FORMS says how a
node is written; what is left out there has no canonical form. All take floating-point numbers.

  Attention(x, w, b[, m])           MultiHeadAttention of the thirds of x w + b, with x [N, T, C],
                                    w [C, 3 · heads · size] and a vector b
  BiasGelu(x, b)                    Gelu of x + b, with a vector b for the last axis
  ErfGelu(x)                        Gelu by erf; com.microsoft calls it Gelu, as ONNX its own
  FastGelu(x[, b])                  Gelu by tanh, of x + b
  FusedMatMul(a, b)                 alpha · A·B; transA and transB turn the last two axes
  MultiHeadAttention(q, k, v[, m])  q [N, T, heads · size], k [N, S, heads · size], v [N, S, heads ·
                                    width], m [N or 1, heads or 1, T, S] added to the scores;
                                    num_heads, scale (of the scores, always given)
  QuickGelu(x)                      x · sigmoid(alpha · x)
  SkipLayerNormalization(x, y, scale[, bias])
                                    LayerNormalization of x + y over the last axis; epsilon
  SkipLayerNormalizationAndSum      the same, and x + y as a second output
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from environments.tensor_graphs.operators import elementwise, normalizations, products
from environments.tensor_graphs.operators.operator import (
    REQUIRED,
    Operator,
    OperatorError,
    Shape,
    Values,
    float_dtype,
    num_elements,
)

Array = np.ndarray

DOMAIN = "com.microsoft"
VERSION = 1


class Form(NamedTuple):
    """How a node is written.

    Attributes:
      op: the operator's name in DOMAIN.
      inputs: for each input of the canonical form its place among the node's inputs.
      outputs: the same for outputs.
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...] = (0,)

    def placed(self, names: Sequence[str], places: Sequence[int]) -> list[str]:
        """Return names at their places, with "" in between."""
        placed = [""] * (1 + max(places[: len(names)], default=-1))
        for place, name in zip(places, names, strict=False):
            placed[place] = name
        return placed


FORMS: Mapping[str, Form] = {
    "Attention": Form("Attention", (0, 1, 2, 5)),
    "BiasGelu": Form("BiasGelu", (0, 1)),
    "ErfGelu": Form("Gelu", (0,)),
    "FastGelu": Form("FastGelu", (0, 1)),
    "FusedMatMul": Form("FusedMatMul", (0, 1)),
    "MultiHeadAttention": Form("MultiHeadAttention", (0, 1, 2, 5)),
    "QuickGelu": Form("QuickGelu", (0,)),
    "SkipLayerNormalization": Form("SkipLayerNormalization", (0, 1, 2, 3)),
    "SkipLayerNormalizationAndSum": Form("SkipLayerNormalization", (0, 1, 2, 3), (0, 3)),
}
"""By the name of the canonical form."""


def _vector_shape(x: Shape, b: Shape | None = None) -> Shape:
    if b is not None and b != x[-1:]:
        raise OperatorError(f"expected a vector for the last axis of {x}, found {b}")
    return x


def _gelu(approximate: str) -> Any:
    def evaluate(f: Any, x: Array, b: Array | None = None) -> Array:
        return elementwise.gelu(f, x if b is None else f.add(x, b), approximate)

    return evaluate


def _quick_gelu(f: Any, x: Array, alpha: float) -> Array:
    bent = x if alpha == 1 else f.multiply(f.number(alpha, x), x)
    return f.multiply(x, f.apply("Sigmoid", bent))


def _turned(shape: Shape, is_turned: int) -> Shape:
    if is_turned and len(shape) < 2:
        raise OperatorError(f"expected a matrix to transpose, found {shape}")
    return (*shape[:-2], *reversed(shape[-2:])) if is_turned else shape


def _fused_matmul_shape(a: Shape, b: Shape, alpha: float, transA: int, transB: int) -> Shape:
    return products.matmul_shape(_turned(a, transA), _turned(b, transB))


def _fused_matmul(f: Any, a: Array, b: Array, alpha: float, transA: int, transB: int) -> Array:
    product = f.matmul(a.swapaxes(-1, -2) if transA else a, b.swapaxes(-1, -2) if transB else b)
    return product if alpha == 1 else f.multiply(product, f.number(alpha, a))


def _attention_shape(
    q: Shape, k: Shape, v: Shape, m: Shape | None = None, *, num_heads: int, scale: float
) -> Shape:
    if any(len(shape) != 3 for shape in (q, k, v)) or not scale:
        # A scale of 0 stands for the usual one in onnxruntime.
        raise OperatorError(f"expected three axes each, and a scale, found {q}, {k}, {v}, {scale}")
    if any(isinstance(size, str) or size % num_heads for size in (q[2], k[2], v[2])):
        raise OperatorError(f"expected sizes for {num_heads} heads, found {q}, {k} and {v}")
    if (q[0], q[2], k[1]) != (k[0], k[2], v[1]) or v[0] != q[0]:
        raise OperatorError(f"expected query, key and value that fit, found {q}, {k} and {v}")
    if m is not None and (
        len(m) != 4 or m[0] not in (1, q[0]) or m[1] not in (1, num_heads) or m[2:] != (q[1], k[1])
    ):
        raise OperatorError(f"expected a mask for scores [N, {num_heads}, T, S], found {m}")
    return (*q[:2], v[2])


def _attention(
    f: Any, q: Array, k: Array, v: Array, m: Array | None = None, *, num_heads: int, scale: float
) -> Array:
    def heads(x: Array) -> Array:
        return x.reshape(*x.shape[:2], num_heads, -1).transpose(0, 2, 1, 3)

    scores = f.matmul(heads(q), heads(k).swapaxes(-1, -2))
    scores = scores if scale == 1 else f.multiply(scores, f.number(scale, q))
    weights = normalizations.softmax(f, scores if m is None else f.add(scores, m), 3)
    mixed = f.matmul(weights, heads(v)).transpose(0, 2, 1, 3)
    return mixed.reshape(*q.shape[:2], v.shape[2])


def _projected_shape(
    x: Shape, w: Shape, b: Shape, m: Shape | None = None, *, num_heads: int, scale: float
) -> Shape:
    if len(x) != 3 or len(w) != 2 or w[0] != x[2] or b != w[1:]:
        raise OperatorError(f"expected rows, a matrix and a vector that fit, found {x}, {w}, {b}")
    if isinstance(w[1], str) or w[1] % 3:
        raise OperatorError(f"expected a matrix for query, key and value, found {w}")
    third = (*x[:2], w[1] // 3)
    return _attention_shape(third, third, third, m, num_heads=num_heads, scale=scale)


def _projected(
    f: Any, x: Array, w: Array, b: Array, m: Array | None = None, *, num_heads: int, scale: float
) -> Array:
    query, key, value = np.split(f.add(f.matmul(x, w), b), 3, axis=2)
    return _attention(f, query, key, value, m, num_heads=num_heads, scale=scale)


def _projected_flops(inputs: Sequence[Any], output: Any, attributes: Values) -> int:
    if inputs[0].shape is None or inputs[1].shape is None:
        return 0
    third = output._replace(shape=(*inputs[0].shape[:2], inputs[1].shape[1] // 3))
    product = (2 * inputs[1].shape[0] + 1) * 3 * num_elements(third)
    return product + _attention_flops([third] * 3, output, attributes)


def _attention_flops(inputs: Sequence[Any], output: Any, attributes: Values) -> int:
    query, key, value = (tensor.shape for tensor in inputs[:3])
    if None in (query, key, value):
        return 0
    columns = key[1] if isinstance(key[1], int) else 1
    rows = num_elements(inputs[0]) // query[2]
    of_softmax = 12 * attributes["num_heads"]
    return rows * columns * (2 * query[2] + 2 * value[2] + of_softmax)


def _skip_shape(x: Shape, y: Shape, *vectors: Shape, epsilon: float) -> Shape:
    if len(x) not in (2, 3) or x != y:
        raise OperatorError(f"expected two equal shapes of 2 or 3 axes, found {x} and {y}")
    if any(vector != x[-1:] for vector in vectors):
        raise OperatorError(f"expected vectors for the last axis of {x}")
    return x


def _skip(f: Any, x: Array, y: Array, *vectors: Array, epsilon: float) -> Array:
    total = f.add(x, y)
    return normalizations.layer(f, total, *vectors, axis=x.ndim - 1, epsilon=epsilon)


def _skip_and_sum(f: Any, x: Array, y: Array, *vectors: Array, epsilon: float) -> list[Array]:
    return [_skip(f, x, y, *vectors, epsilon=epsilon), f.add(x, y)]


_operator = functools.partial(Operator, dtype_fn=float_dtype)
_ATTENTION = {"num_heads": REQUIRED, "scale": REQUIRED}
_SKIP = "x y scale bias?"
OPERATORS = [
    _operator(
        "Attention", "x w b m?", _projected_shape, _projected, _projected_flops, **_ATTENTION
    ),
    _operator("BiasGelu", "x b", _vector_shape, _gelu("none"), 14),
    _operator("ErfGelu", "x", _vector_shape, _gelu("none"), 13),
    _operator("FastGelu", "x b?", _vector_shape, _gelu("tanh"), 13),
    _operator(
        "FusedMatMul", "a b", _fused_matmul_shape, _fused_matmul, products.flops_of_product,
        alpha=1.0, transA=0, transB=0,
    ),
    _operator(
        "MultiHeadAttention", "q k v m?", _attention_shape, _attention, _attention_flops,
        **_ATTENTION,
    ),
    _operator("QuickGelu", "x", lambda x, alpha: x, _quick_gelu, 10, alpha=1.0),
    _operator("SkipLayerNormalization", _SKIP, _skip_shape, _skip, 9, epsilon=1e-5),
    _operator(
        "SkipLayerNormalizationAndSum", _SKIP,
        lambda *shapes, **attributes: [_skip_shape(*shapes, **attributes)] * 2,
        _skip_and_sum, 9, num_outputs_fn=lambda attributes: 2, epsilon=1e-5,
    ),
]  # fmt: skip
