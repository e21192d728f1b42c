"""Elementwise operators.

Canonical forms have one, two or three inputs, broadcast as in NumPy. ONNX's sums, maxima and minima
of more inputs are nested: Add(Add(a, b), c). A Sum is an Add that backends fuse with nothing; rules
make it. Clip takes floating-point numbers only; its bounds are attributes, -inf and inf where ONNX
leaves them out. Cast's `to` is the name of an element type ("float32"), as in TensorType.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from environments.tensor_graphs.operators.operator import (
    FLOAT_TYPES,
    REQUIRED,
    Operator,
    OperatorError,
    Shape,
    float_dtype,
    same_dtype,
)

Array = np.ndarray


def broadcast(left: Shape, right: Shape) -> Shape:
    """Return the shape to which two tensors are broadcast.

    Raises:
      OperatorError: the shapes do not fit, or the result depends on sizes that are not known.
    """
    if left == right:
        return left
    if len(left) < len(right):
        left, right = right, left
    start = len(left) - len(right)
    sizes = list(left)
    for place, size in enumerate(right, start):
        mine = sizes[place]
        if mine == size or size == 1:
            continue
        if mine == 1 or (isinstance(mine, str) and isinstance(size, int)):
            sizes[place] = size
        elif not (isinstance(size, str) and isinstance(mine, int)):
            raise OperatorError(f"expected shapes that can be broadcast, found {left} and {right}")
    return tuple(sizes)


def _shape(*shapes: Shape, **_: Any) -> Shape:
    return functools.reduce(broadcast, shapes)


def _operator(
    name: str,
    inputs: str,
    meaning: Callable[..., Any],
    flops: int,
    dtype_fn: Callable[..., str] = float_dtype,
    commutative: bool = False,
    **attributes: Any,
) -> Operator:
    settings = {"dtype_fn": dtype_fn, "commutative": commutative, **attributes}
    return Operator(name, inputs, _shape, meaning, flops, **settings)


def _function(name: str, flops: int) -> Operator:
    return _operator(name, "x", lambda algebra, x: algebra.apply(name, x), flops)


# What the operators compute. The first argument is the algebra.


def _neg(f: Any, x: Array) -> Array:
    # 0 - x would turn 0 into 0 instead of -0, and 1 / 0 depends on the sign of the zero.
    return f.multiply(f.number(-1, x), x)


def _abs(f: Any, x: Array) -> Array:
    return np.where(f.less(x, f.number(0, x)), _neg(f, x), x)


def _sign(f: Any, x: Array) -> Array:
    zero, unit = f.number(0, x), f.number(1, x)
    return np.where(f.less(zero, x), unit, np.where(f.less(x, zero), _neg(f, unit), zero))


def _leaky_relu(f: Any, x: Array, alpha: float) -> Array:
    return _prelu(f, x, f.number(alpha, x))


def _prelu(f: Any, x: Array, slope: Array) -> Array:
    return np.where(f.less(x, f.number(0, x)), f.multiply(x, slope), x)


def _elu(f: Any, x: Array, alpha: float) -> Array:
    zero = f.number(0, x)
    below = f.subtract(f.apply("Exp", f.minimum(x, zero)), f.number(1, x))
    return np.where(f.less(x, zero), f.multiply(f.number(alpha, x), below), x)


def _selu(f: Any, x: Array, alpha: float, gamma: float) -> Array:
    return f.multiply(f.number(gamma, x), _elu(f, x, alpha))


def _softplus(f: Any, x: Array) -> Array:
    # log(1 + exp x), computed without overflow where numbers are floats.
    if x.dtype.kind == "f":
        return np.logaddexp(x, f.number(0, x)).astype(x.dtype, copy=False)
    return f.apply("Log", f.add(f.apply("Exp", x), f.number(1, x)))


def _hard_sigmoid(f: Any, x: Array, alpha: float, beta: float) -> Array:
    return _clip(f, f.add(f.multiply(x, f.number(alpha, x)), f.number(beta, x)), 0.0, 1.0)


def _hard_swish(f: Any, x: Array) -> Array:
    return f.multiply(x, _hard_sigmoid(f, x, alpha=float(np.float32(1 / 6)), beta=0.5))


def _clip(f: Any, x: Array, min: float, max: float) -> Array:
    if min != -np.inf:
        x = f.maximum(x, f.number(min, x))
    return f.minimum(x, f.number(max, x)) if max != np.inf else x


SQRT_2 = float(np.float32(2**0.5))
SQRT_2_PI = float(np.float32((2 / np.pi) ** 0.5))


def gelu(f: Any, x: Array, approximate: str) -> Array:
    """Compute ½ x (1 + erf(x / √2)), or with tanh(√(2/π) (x + 0.044715 x³)) in place of erf."""
    unit = f.number(1, x)
    if approximate == "none":
        inner = f.apply("Erf", f.divide(x, f.number(SQRT_2, x)))
    elif approximate == "tanh":
        cube = f.multiply(f.multiply(x, x), x)
        bent = f.add(x, f.multiply(f.number(float(np.float32(0.044715)), x), cube))
        inner = f.apply("Tanh", f.multiply(f.number(SQRT_2_PI, x), bent))
    else:
        raise OperatorError(f"Gelu: expected approximate none or tanh, found {approximate}")
    return f.multiply(f.multiply(x, f.number(0.5, x)), f.add(unit, inner))


def _compared(*dtypes: str) -> str:
    same_dtype(*dtypes)
    return "bool"


def _truth(*dtypes: str) -> str:
    if any(dtype != "bool" for dtype in dtypes):
        raise OperatorError(f"expected truth values, found {dtypes[0]}")
    return "bool"


def _where_dtype(condition: str, *dtypes: str) -> str:
    if condition != "bool":
        raise OperatorError(f"expected truth values to choose by, found {condition}")
    return same_dtype(*dtypes)


def _pow_dtype(base: str, exponent: str) -> str:
    if base not in FLOAT_TYPES:
        raise OperatorError(f"expected floating-point numbers, found {base}")
    return base


def _greater_or_equal(f: Any, a: Array, b: Array) -> Array:
    return f.less(b, a) | np.equal(a, b)


_UNARY = [
    *(_function(name, 8) for name in ("Cos", "Erf", "Exp", "Log", "Sigmoid", "Sin", "Tanh")),
    *(_function(name, 1) for name in ("Ceil", "Floor", "Round", "Sqrt")),
    _operator("Abs", "x", _abs, 1, same_dtype),
    _operator("Cast", "x", lambda f, x, to: f.cast(x, to), 0, lambda dtype, to: to, to=REQUIRED),
    _operator("Clip", "x", _clip, 2, min=-float("inf"), max=float("inf")),
    _operator("Elu", "x", _elu, 10, alpha=1.0),
    _operator("Gelu", "x", gelu, 13, approximate="none"),
    _operator("HardSigmoid", "x", _hard_sigmoid, 4, alpha=0.2, beta=0.5),
    _operator("HardSwish", "x", _hard_swish, 5),
    _operator("LeakyRelu", "x", _leaky_relu, 2, alpha=0.01),
    _operator("Mish", "x", lambda f, x: f.multiply(x, f.apply("Tanh", _softplus(f, x))), 26),
    _operator("Neg", "x", _neg, 1, same_dtype),
    _operator("Not", "x", lambda f, x: ~x, 0, _truth),
    _operator("Reciprocal", "x", lambda f, x: f.divide(f.number(1, x), x), 1),
    _operator("Relu", "x", lambda f, x: f.maximum(x, f.number(0, x)), 1, same_dtype),
    _operator("Selu", "x", _selu, 11, alpha=1.6732632423543772, gamma=1.0507009873554805),
    _operator("Sign", "x", _sign, 1, same_dtype),
    _operator("Softplus", "x", _softplus, 17),
    _operator("Softsign", "x", lambda f, x: f.divide(x, f.add(_abs(f, x), f.number(1, x))), 3),
]
_BINARY = [
    _operator("Add", "a b", lambda f, a, b: f.add(a, b), 1, same_dtype, True),
    _operator("And", "a b", lambda f, a, b: a & b, 0, _truth, True),
    _operator("Div", "a b", lambda f, a, b: f.divide(a, b), 1, same_dtype),
    _operator("Equal", "a b", lambda f, a, b: a == b, 1, _compared, True),
    _operator("Greater", "a b", lambda f, a, b: f.less(b, a), 1, _compared),
    _operator("GreaterOrEqual", "a b", _greater_or_equal, 1, _compared),
    _operator("Less", "a b", lambda f, a, b: f.less(a, b), 1, _compared),
    _operator("LessOrEqual", "a b", lambda f, a, b: _greater_or_equal(f, b, a), 1, _compared),
    _operator("Max", "a b", lambda f, a, b: f.maximum(a, b), 1, same_dtype, True),
    _operator("Min", "a b", lambda f, a, b: f.minimum(a, b), 1, same_dtype, True),
    _operator("Mul", "a b", lambda f, a, b: f.multiply(a, b), 1, same_dtype, True),
    _operator("Or", "a b", lambda f, a, b: a | b, 0, _truth, True),
    _operator("PRelu", "x slope", _prelu, 2, same_dtype),
    _operator("Pow", "a b", lambda f, a, b: f.power(a, b), 8, _pow_dtype),
    _operator("Sub", "a b", lambda f, a, b: f.subtract(a, b), 1, same_dtype),
    _operator("Sum", "a b", lambda f, a, b: f.add(a, b), 1, commutative=True),
    _operator("Where", "condition x y", lambda f, c, x, y: np.where(c, x, y), 1, _where_dtype),
    _operator("Xor", "a b", lambda f, a, b: a ^ b, 0, _truth, True),
]
OPERATORS = [*_UNARY, *_BINARY]
