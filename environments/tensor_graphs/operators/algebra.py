"""Floats: numbers as ONNX means them.

An algebra says what numbers are; the operators are written over it. `field` has the other one.
Arrays of integers and truth values mean the same in every algebra.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


def _erf(x: np.ndarray) -> np.ndarray:
    from scipy import special

    return special.erf(x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    from scipy import special

    return special.expit(x)


FUNCTIONS: Mapping[str, Callable[..., np.ndarray]] = {
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Erf": _erf,
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": np.log,
    "Pow": np.power,
    "Round": np.rint,
    "Sigmoid": _sigmoid,
    "Sin": np.sin,
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
}
"""Functions that an algebra may leave without meaning."""


class Floats:
    """NumPy's numbers; a result has the type of the first argument."""

    def number(self, value: float, like: np.ndarray) -> np.ndarray:
        """A number as a tensor without axes, to be used with another tensor."""
        return np.asarray(value, like.dtype)

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Sum of two."""
        return np.add(a, b)

    def subtract(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Difference of two."""
        return np.subtract(a, b)

    def multiply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Product of two."""
        return np.multiply(a, b)

    def divide(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Quotient of two; of integers the part before the point, as ONNX has it."""
        if np.issubdtype(a.dtype, np.integer):
            down = a // b
            return down + ((down < 0) & (down * b != a)).astype(a.dtype)
        return np.divide(a, b)

    def power(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """A power."""
        return np.power(a, b).astype(a.dtype, copy=False)

    def matmul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """NumPy's product of matrices."""
        return np.matmul(a, b)

    def sum(self, x: np.ndarray, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
        """The sum over axes."""
        return np.sum(x, axis=tuple(axes), keepdims=keepdims, dtype=x.dtype)

    def mean(self, x: np.ndarray, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
        """The mean over axes."""
        mean = np.mean(x, axis=tuple(axes), keepdims=keepdims)
        return np.asarray(mean).astype(x.dtype, copy=False)

    def maximum(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The larger of two."""
        return np.maximum(a, b)

    def minimum(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The smaller of two."""
        return np.minimum(a, b)

    def max(
        self,
        x: np.ndarray,
        axes: Sequence[int],
        keepdims: bool = False,
        where: np.ndarray | None = None,
    ) -> np.ndarray:
        """The largest over axes, of those in `where` only."""
        if where is not None:
            x = np.where(where, x, self._lowest(x.dtype))
        return np.max(x, axis=tuple(axes), keepdims=keepdims)

    def min(self, x: np.ndarray, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
        """The smallest over axes."""
        return np.min(x, axis=tuple(axes), keepdims=keepdims)

    def argmax(self, x: np.ndarray, axis: int) -> np.ndarray:
        """The place of the first largest, int64."""
        return np.argmax(x, axis=axis).astype(np.int64)

    def argmin(self, x: np.ndarray, axis: int) -> np.ndarray:
        """The place of the first smallest, int64."""
        return np.argmin(x, axis=axis).astype(np.int64)

    def less(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Whether a < b."""
        return np.less(a, b)

    def cast(self, x: np.ndarray, dtype: str) -> np.ndarray:
        """The same numbers in another type."""
        return x.astype(dtype)

    def apply(self, name: str, *arguments: np.ndarray) -> np.ndarray:
        """One of FUNCTIONS."""
        result = np.asarray(FUNCTIONS[name](*arguments))
        return result.astype(arguments[0].dtype, copy=False)

    def _lowest(self, dtype: np.dtype) -> Any:
        return -np.inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).min


FLOATS = Floats()
