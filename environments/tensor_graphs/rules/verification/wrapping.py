"""Evaluate operators on integers as ONNX means them, and tell what it does not define."""

from __future__ import annotations

import numpy as np

from environments.tensor_graphs.operators.algebra import Floats

_ODD = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


class Wrapping(Floats):
    """NumPy's numbers. Where ONNX defines no result, it depends on a key.

    A quotient by zero is not defined, nor is the smallest integer divided by -1, nor a number that
    is converted to a type that does not hold it. Such a result is a hash of the operand and of the
    key. So an element of a tensor is defined if it is the same for several keys.

    Attributes:
      is_defined: whether everything computed so far is defined.
    """

    def __init__(self, key: int = 0) -> None:
        self._key = np.uint64(key)
        self.is_defined = True

    def number(self, value: float, like: np.ndarray) -> np.ndarray:
        """Return a number as an array of shape []; integers wrap around."""
        if like.dtype.kind not in "iu":
            return super().number(value, like)
        bits = 8 * like.dtype.itemsize
        return np.asarray(int(value) % 2**bits, f"uint{bits}").astype(like.dtype)

    def divide(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Divide two arrays; quotients of integers are truncated."""
        if a.dtype.kind not in "iu":
            return super().divide(a, b)
        undefined = b == 0
        if a.dtype.kind == "i":
            undefined = undefined | ((a == np.iinfo(a.dtype).min) & (b == -1))
        return self._unless(
            undefined, super().divide(a, np.where(undefined, np.ones_like(b), b)), a
        )

    def cast(self, x: np.ndarray, dtype: str) -> np.ndarray:
        """Convert an array to another element type."""
        if x.dtype.kind != "f" or np.dtype(dtype).kind not in "iu":
            return super().cast(x, dtype)
        limits = np.iinfo(dtype)
        whole = np.trunc(x)
        undefined = ~((whole >= float(limits.min)) & (whole < float(limits.max)))
        return self._unless(undefined, np.where(undefined, 0, whole).astype(dtype), x)

    def _unless(self, undefined: np.ndarray, result: np.ndarray, operand: np.ndarray) -> np.ndarray:
        """Put hashes of the operand and the key where a result is not defined."""
        if not np.any(undefined):
            return result
        self.is_defined = False
        # With at least one axis, NumPy does not warn of overflow, which is intended here.
        bits = np.atleast_1d(operand).astype(np.float64).view(np.uint64)
        mixed = (bits + self._key) * _ODD
        mixed = (mixed ^ (mixed >> _HALF)) * _ODD
        hashed = (mixed >> _HALF).astype(result.dtype).reshape(operand.shape)
        return np.where(undefined, hashed, result)
