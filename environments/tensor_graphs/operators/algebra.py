"""Evaluate operators on floating-point numbers.

An algebra defines what numbers are and how to compute with them; operators are written in terms of
an algebra. `Floats` is the one that ONNX means, `field.Field` is another one. Arrays of integers
and truth values mean the same in every algebra.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


def _special(name: str) -> Callable[..., np.ndarray]:
    """Return a function of SciPy, which is imported when it is called."""

    def apply(x: np.ndarray) -> np.ndarray:
        from scipy import special

        return getattr(special, name)(x)

    return apply


FUNCTIONS: Mapping[str, Callable[..., np.ndarray]] = {
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Erf": _special("erf"),
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": np.log,
    "Pow": np.power,
    "Round": np.rint,
    "Sigmoid": _special("expit"),
    "Sin": np.sin,
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
}
"""Functions that an algebra may leave uninterpreted."""


class Floats:
    """NumPy's numbers; each result has the dtype of the first argument."""

    add: Any = staticmethod(np.add)
    subtract: Any = staticmethod(np.subtract)
    multiply: Any = staticmethod(np.multiply)
    matmul: Any = staticmethod(np.matmul)
    maximum: Any = staticmethod(np.maximum)
    minimum: Any = staticmethod(np.minimum)
    less: Any = staticmethod(np.less)

    def number(self, value: float, like: np.ndarray) -> np.ndarray:
        """Return a number as an array of shape [] and with the dtype of another array."""
        return np.asarray(value, like.dtype)

    def divide(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Divide two arrays; quotients of integers are truncated, as in ONNX."""
        if np.issubdtype(a.dtype, np.integer):
            down = a // b
            return down + ((down < 0) & (down * b != a)).astype(a.dtype)
        return np.divide(a, b)

    def power(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Raise an array to a power."""
        return np.power(a, b).astype(a.dtype, copy=False)

    def sum(self, x: np.ndarray, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
        """Sum over axes."""
        return np.sum(x, axis=tuple(axes), keepdims=keepdims, dtype=x.dtype)

    def mean(self, x: np.ndarray, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
        """Return the mean over axes."""
        mean = np.mean(x, axis=tuple(axes), keepdims=keepdims)
        return np.asarray(mean).astype(x.dtype, copy=False)

    def max(
        self,
        x: np.ndarray,
        axes: Sequence[int],
        keepdims: bool = False,
        where: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the largest element over axes, of those where `where` is true."""
        if where is not None:
            is_float = np.issubdtype(x.dtype, np.floating)
            x = np.where(where, x, -np.inf if is_float else np.iinfo(x.dtype).min)
        return np.max(x, axis=tuple(axes), keepdims=keepdims)

    def min(self, x: np.ndarray, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
        """Return the smallest element over axes."""
        return np.min(x, axis=tuple(axes), keepdims=keepdims)

    def places(self, x: np.ndarray) -> np.ndarray:
        """Return keys that NumPy sorts as this algebra orders the numbers."""
        return x

    def cast(self, x: np.ndarray, dtype: str) -> np.ndarray:
        """Convert an array to another element type."""
        return x.astype(dtype)

    def apply(self, name: str, *arguments: np.ndarray) -> np.ndarray:
        """Apply one of FUNCTIONS."""
        result = np.asarray(FUNCTIONS[name](*arguments))
        return result.astype(arguments[0].dtype, copy=False)


FLOATS = Floats()
