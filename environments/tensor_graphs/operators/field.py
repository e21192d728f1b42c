"""Evaluate operators on integers modulo a prime, so that equalities can be tested exactly.

Numbers are integers modulo p = 2³¹ - 1, held as uint64. Arrays of other dtypes are not numbers of
this field and mean the same as in `Floats`.

Sums, products, quotients, means, products of matrices and convolutions are exact. So two different
rational functions of degree d agree at a random point with a probability of at most about d / p
(Schwartz and Zippel).

Other functions (Exp, Erf, Sqrt, rounding …) are *uninterpreted*: a keyed hash of their arguments
takes their place. An equality that holds for such functions holds for any functions.

Relu, Max, Less and others need an order of the numbers. The key chooses the order. It is total, is
reversed by negation, and is the real order for multiples of 1/64 up to 4096. Otherwise it is
arbitrary, so sums and products do not respect it. Real numbers have all these properties too, so an
equality that holds here for all keys and numbers also holds for real numbers. An equality that
needs further properties (Relu(2·x) = 2·Relu(x)) fails here, which is the safe error. A comparison
chooses between rational functions, so equalities with comparisons should be tested at many points
and with several keys.

A quotient by zero is a hash of the dividend; test equalities with such quotients with `Floats` too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.operators.algebra import Floats

PRIME = 2**31 - 1

_P = np.uint64(PRIME)
_HALF = np.uint64(PRIME // 2)
_SIXTEEN = np.uint64(16)
_ONE = np.uint64(1)
_SIX = np.uint64(6)
_NEAR = 2**18
_LOW = np.uint64(0xFFFF)
_LARGEST = np.int64(2**63 - 1)
_MAX_EXPONENT = 64


class Field(Floats):
    """Integers modulo p, with functions and an order that a key chooses.

    Args:
      key: chooses the uninterpreted functions and the order.
    """

    def __init__(self, key: int = 0) -> None:
        self.key = key

    def random(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Draw independent, uniformly distributed numbers."""
        return rng.integers(0, PRIME, shape, dtype=np.uint64)

    def embed(self, array: np.ndarray) -> np.ndarray:
        """Convert floating-point numbers to the field; this is exact, since they are fractions."""
        array = np.asarray(array, np.float64)
        numbers = [_number(float(value)) for value in array.reshape(-1)]
        return np.array(numbers, np.uint64).reshape(array.shape)

    def number(self, value: float, like: np.ndarray) -> np.ndarray:
        """Return a number as an array of shape []."""
        if like.dtype != np.uint64:
            return super().number(value, like)
        return np.asarray(_number(float(value)), np.uint64)

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Add two arrays."""
        return (a + b) % _P if a.dtype == np.uint64 else super().add(a, b)

    def subtract(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Subtract an array from another."""
        return (a + (_P - b)) % _P if a.dtype == np.uint64 else super().subtract(a, b)

    def multiply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Multiply two arrays."""
        return (a * b) % _P if a.dtype == np.uint64 else super().multiply(a, b)

    def divide(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Divide two arrays; where the second is zero, the result is a hash of the first."""
        if a.dtype != np.uint64:
            return super().divide(a, b)
        result = a * _inverse(b) % _P
        if np.all(b):
            return result
        return np.where(b == 0, self._hash("a / 0", a), result)

    def power(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Raise an array to a power.

        Powers are exact for whole exponents from -64 to 64, Sqrt for 1/2, and uninterpreted
        otherwise.
        """
        if a.dtype != np.uint64:
            return super().power(a, b)
        b = self.embed(b) if b.dtype != np.uint64 else b
        result = self._hash("Pow", a, b)
        for exponent in np.unique(b):
            whole = _centered(exponent)
            if abs(whole) <= _MAX_EXPONENT:
                exact = _power(a, abs(int(whole)))
                exact = exact if whole >= 0 else self.divide(np.asarray(1, np.uint64), exact)
                result = np.where(b == exponent, exact, result)
            elif int(exponent) == _number(0.5):
                result = np.where(b == exponent, self.apply("Sqrt", a), result)
        return result

    def matmul(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Multiply matrices; sums of up to 2¹⁶ products stay below 2⁶⁴."""
        if a.dtype != np.uint64:
            return super().matmul(a, b)
        high = np.matmul(a >> _SIXTEEN, b) % _P
        return ((high << _SIXTEEN) + np.matmul(a & _LOW, b)) % _P

    def sum(self, x: np.ndarray, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
        """Sum over axes."""
        total = super().sum(x, axes, keepdims)
        return total % _P if x.dtype == np.uint64 else total

    def mean(self, x: np.ndarray, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
        """Return the mean over axes."""
        if x.dtype != np.uint64:
            return super().mean(x, axes, keepdims)
        count = int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))
        return self.divide(self.sum(x, axes, keepdims), np.asarray(count % PRIME, np.uint64))

    def maximum(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the larger of two arrays' elements."""
        if a.dtype != np.uint64:
            return super().maximum(a, b)
        return np.where(self.places(a) >= self.places(b), a, b)

    def minimum(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the smaller of two arrays' elements."""
        if a.dtype != np.uint64:
            return super().minimum(a, b)
        return np.where(self.places(a) <= self.places(b), a, b)

    def max(
        self,
        x: np.ndarray,
        axes: Sequence[int],
        keepdims: bool = False,
        where: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the largest element over axes, of those where `where` is true."""
        if x.dtype != np.uint64:
            return super().max(x, axes, keepdims, where)
        place = self.places(x)
        return _pick(
            x, place if where is None else np.where(where, place, -_LARGEST), axes, keepdims
        )

    def min(self, x: np.ndarray, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
        """Return the smallest element over axes."""
        if x.dtype != np.uint64:
            return super().min(x, axes, keepdims)
        return _pick(x, -self.places(x), axes, keepdims)

    def places(self, x: np.ndarray) -> np.ndarray:
        """Return int64 keys that sort numbers by the order; those of -x are the negative ones."""
        if x.dtype != np.uint64:
            return x
        # With at least one axis, NumPy does not warn of overflow, which is intended here.
        numbers = np.atleast_1d(x)
        near = _centered((numbers << _SIX) % _P)
        centered = _centered(numbers)
        mixed = _mix(np.abs(centered).astype(np.uint64) ^ self._key("the order"))
        far = (mixed >> _ONE).astype(np.int64) - np.int64(2**62)
        far = np.where(centered < 0, -far, far)
        places = np.where(np.abs(near) <= _NEAR, near << np.int64(43), far)
        return places.reshape(np.shape(x))

    def less(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return whether a < b, element by element."""
        return np.less(self.places(a), self.places(b))

    def cast(self, x: np.ndarray, dtype: str) -> np.ndarray:
        """Convert an array to another element type.

        The conversion of the field's numbers is uninterpreted; that of other types is exact.
        """
        is_float = dtype in ("float16", "bfloat16", "float32", "float64")
        if x.dtype == np.uint64:
            rounded = self._hash(f"Cast {dtype}", x)
            return rounded if is_float else (rounded % np.uint64(2)).astype(dtype)
        return self.embed(x) if is_float else super().cast(x, dtype)

    def apply(self, name: str, *arguments: np.ndarray) -> np.ndarray:
        """Apply an uninterpreted function."""
        if arguments[0].dtype != np.uint64:
            return super().apply(name, *arguments)
        return self._hash(name, *arguments)

    def _key(self, name: str) -> np.uint64:
        digest = hashlib.blake2b(f"{self.key} {name}".encode(), digest_size=8).digest()
        return np.uint64(int.from_bytes(digest, "little"))

    def _hash(self, name: str, *arguments: np.ndarray) -> np.ndarray:
        state: Any = self._key(name)
        for argument in arguments:
            # With at least one axis, NumPy does not warn of overflow, which is intended here.
            state = _mix(state ^ _mix(np.atleast_1d(argument) + _ONE))
        shape = np.broadcast_shapes(*[np.shape(argument) for argument in arguments])
        return (state % _P).reshape(shape)


def _number(value: float) -> int:
    """Convert a float to the field; its denominator is a power of two, and 2³¹ = 1 modulo p."""
    above, below = value.as_integer_ratio()
    shift = (below.bit_length() - 1) % 31
    return above * pow(2, 31 - shift, PRIME) % PRIME


def _centered(x: np.ndarray) -> np.ndarray:
    """Return the integers between -p/2 and p/2 that stand for the numbers, int64."""
    signed = x.astype(np.int64)
    return signed - np.int64(PRIME) * (x > _HALF)


def _power(x: np.ndarray, exponent: int) -> np.ndarray:
    result = np.ones_like(x)
    while exponent:
        if exponent & 1:
            result = result * x % _P
        x = x * x % _P
        exponent >>= 1
    return result


def _inverse(x: np.ndarray) -> np.ndarray:
    """Invert numbers by Fermat: raise them to p - 2 = 4 · (2²⁹ - 1) + 1. The inverse of 0 is 0."""
    ones = {1: x}
    for more in (1, 2, 4, 8):
        ones[2 * more] = _squared(ones[more], more) * ones[more] % _P
    power = _squared(ones[16], 8) * ones[8] % _P
    power = _squared(power, 4) * ones[4] % _P
    power = _squared(power, 1) * x % _P
    return _squared(power, 2) * x % _P


def _squared(x: np.ndarray, times: int) -> np.ndarray:
    for _ in range(times):
        x = x * x % _P
    return x


def _pick(x: np.ndarray, place: np.ndarray, axes: Sequence[int], keepdims: bool) -> np.ndarray:
    """Return the elements with the highest place over axes."""
    axes = tuple(axis % x.ndim for axis in axes)
    left_axes = tuple(axis for axis in range(x.ndim) if axis not in axes)
    shape = tuple(x.shape[axis] for axis in left_axes)
    x = x.transpose(*left_axes, *axes).reshape(*shape, -1)
    place = place.transpose(*left_axes, *axes).reshape(*shape, -1)
    best = np.argmax(place, axis=-1)[..., None]
    picked = np.take_along_axis(x, best, axis=-1)[..., 0]
    return np.expand_dims(picked, axes) if keepdims else picked


def _mix(x: np.ndarray) -> np.ndarray:
    """Scramble 64 bits by a bijection that looks random (the finalizer of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
