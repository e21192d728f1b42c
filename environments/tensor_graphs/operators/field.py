"""Integers modulo a prime in the place of real numbers: equalities can be tested exactly.

Numbers are those modulo p = 2³¹ - 1, as uint64: only arrays of uint64 are numbers here, those of
other types mean what they say. Sums, products, quotients, means, products of matrices and
convolutions are exact, so an equality of rational functions of degree d that is false holds at a
random point with a probability of at most about d / p (Schwartz and Zippel).

Other functions (Exp, Erf, Sqrt, rounding …) are *uninterpreted*: a keyed hash of their arguments.
What holds for such functions holds for any functions in their place.

Numbers have an order, chosen by the key, for Relu, Max, Less …: total, reversed by negation, and
the real one for multiples of 1/64 up to 4096; else it is arbitrary, so sums and products do not
respect it. All of that is true of real numbers, so an equality that holds here for all keys and
numbers holds there too. An equality that needs more (Relu(2·x) = 2·Relu(x)) is not found to hold:
that is the side to err on. Each comparison decides which of two rational functions is looked at:
equalities with comparisons want many points, and several keys.

A quotient by zero is a hash of what is divided; where that comes in, test with Floats too.
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
_MOST_KNOWN = 1 << 12
_LOW = np.uint64(0xFFFF)
_LARGEST = np.int64(2**63 - 1)
_MAX_EXPONENT = 64


class Field(Floats):
    """The numbers modulo p, with functions and an order that are chosen by a key."""

    def __init__(self, key: int = 0) -> None:
        self.key = key
        self._keys: dict[str, np.uint64] = {}
        self._known_places: dict[int, np.ndarray] = {}

    def random(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Independent numbers, each as probable as the others."""
        return rng.integers(0, PRIME, shape, dtype=np.uint64)

    def embed(self, array: np.ndarray) -> np.ndarray:
        """Floating-point numbers, each a fraction with a power of two below it, as numbers here."""
        array = np.asarray(array, np.float64)
        found = [_number(float(value)) for value in array.reshape(-1)]
        return np.array(found, np.uint64).reshape(array.shape)

    def number(self, value: float, like: np.ndarray) -> np.ndarray:
        """A number as a tensor without axes."""
        if like.dtype != np.uint64:
            return super().number(value, like)
        return np.asarray(_number(float(value)), np.uint64)

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Sum of two."""
        return (a + b) % _P if a.dtype == np.uint64 else super().add(a, b)

    def subtract(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Difference of two."""
        return (a + (_P - b)) % _P if a.dtype == np.uint64 else super().subtract(a, b)

    def multiply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Product of two."""
        return (a * b) % _P if a.dtype == np.uint64 else super().multiply(a, b)

    def divide(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Quotient of two; a hash of the first where the second is zero."""
        if a.dtype != np.uint64:
            return super().divide(a, b)
        result = a * _inverse(b) % _P
        if np.all(b):
            return result
        return np.where(b == 0, self._hash("a / 0", a), result)

    def power(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Exact for whole exponents up to 64 and -64; the root for 1/2; else uninterpreted."""
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
        """The product of matrices; sums of up to 2¹⁶ products stay below 2⁶⁴."""
        if a.dtype != np.uint64:
            return super().matmul(a, b)
        high = np.matmul(a >> _SIXTEEN, b) % _P
        return ((high << _SIXTEEN) + np.matmul(a & _LOW, b)) % _P

    def sum(self, x: np.ndarray, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
        """The sum over axes."""
        total = super().sum(x, axes, keepdims)
        return total % _P if x.dtype == np.uint64 else total

    def mean(self, x: np.ndarray, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
        """The mean over axes."""
        if x.dtype != np.uint64:
            return super().mean(x, axes, keepdims)
        count = int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))
        return self.divide(self.sum(x, axes, keepdims), np.asarray(count % PRIME, np.uint64))

    def maximum(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The larger of two."""
        if a.dtype != np.uint64:
            return super().maximum(a, b)
        return np.where(self._place(a) >= self._place(b), a, b)

    def minimum(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The smaller of two."""
        if a.dtype != np.uint64:
            return super().minimum(a, b)
        return np.where(self._place(a) <= self._place(b), a, b)

    def max(
        self,
        x: np.ndarray,
        axes: Sequence[int],
        keepdims: bool = False,
        where: np.ndarray | None = None,
    ) -> np.ndarray:
        """The largest over axes, of those in `where` only."""
        if x.dtype != np.uint64:
            return super().max(x, axes, keepdims, where)
        place = self._place(x)
        return _pick(
            x, place if where is None else np.where(where, place, -_LARGEST), axes, keepdims
        )

    def min(self, x: np.ndarray, axes: Sequence[int], keepdims: bool = False) -> np.ndarray:
        """The smallest over axes."""
        if x.dtype != np.uint64:
            return super().min(x, axes, keepdims)
        return _pick(x, -self._place(x), axes, keepdims)

    def argmax(self, x: np.ndarray, axis: int) -> np.ndarray:
        """The place of the first largest, int64."""
        return super().argmax(self._place(x) if x.dtype == np.uint64 else x, axis)

    def argmin(self, x: np.ndarray, axis: int) -> np.ndarray:
        """The place of the first smallest, int64."""
        return super().argmin(self._place(x) if x.dtype == np.uint64 else x, axis)

    def less(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Whether a < b."""
        if a.dtype != np.uint64:
            return super().less(a, b)
        return self._place(a) < self._place(b)

    def cast(self, x: np.ndarray, dtype: str) -> np.ndarray:
        """Uninterpreted between numbers of different precision; exact from what is no number."""
        is_float = dtype in ("float16", "bfloat16", "float32", "float64")
        if x.dtype == np.uint64:
            rounded = self._hash(f"Cast {dtype}", x)
            return rounded if is_float else (rounded % np.uint64(2)).astype(dtype)
        return self.embed(x) if is_float else super().cast(x, dtype)

    def apply(self, name: str, *arguments: np.ndarray) -> np.ndarray:
        """An uninterpreted function."""
        if arguments[0].dtype != np.uint64:
            return super().apply(name, *arguments)
        return self._hash(name, *arguments)

    def _key(self, name: str) -> np.uint64:
        if name not in self._keys:
            digest = hashlib.blake2b(f"{self.key} {name}".encode(), digest_size=8).digest()
            self._keys[name] = np.uint64(int.from_bytes(digest, "little"))
        return self._keys[name]

    def _hash(self, name: str, *arguments: np.ndarray) -> np.ndarray:
        state: Any = self._key(name)
        for argument in arguments:
            # With an axis, or NumPy warns of products that are taken modulo 2⁶⁴.
            state = _mix(state ^ _mix(np.atleast_1d(argument) + _ONE))
        shape = np.broadcast_shapes(*[np.shape(argument) for argument in arguments])
        return (state % _P).reshape(shape)

    def _place(self, x: np.ndarray) -> np.ndarray:
        """Where numbers stand in the order, int64; place(-x) = -place(x)."""
        x = np.asarray(x)
        if x.ndim:
            return self._places(x)
        value = int(x)
        if value not in self._known_places:
            if len(self._known_places) >= _MOST_KNOWN:
                self._known_places.clear()
            self._known_places[value] = self._places(x.reshape(1)).reshape(())
        return self._known_places[value]

    def _places(self, x: np.ndarray) -> np.ndarray:
        near = _centered((x << _SIX) % _P)
        centered = _centered(x)
        mixed = _mix(np.abs(centered).astype(np.uint64) ^ self._key("the order"))
        far = (mixed >> _ONE).astype(np.int64) - np.int64(2**62)
        far = np.where(centered < 0, -far, far)
        return np.where(np.abs(near) <= _NEAR, near << np.int64(43), far)


def _number(value: float) -> int:
    """A fraction with a power of two below it: 2³¹ = 1 modulo p."""
    above, below = value.as_integer_ratio()
    shift = (below.bit_length() - 1) % 31
    return above * pow(2, 31 - shift, PRIME) % PRIME


def _centered(x: np.ndarray) -> np.ndarray:
    """The representative between -p/2 and p/2, int64."""
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
    """The power p - 2 = 4 · (2²⁹ - 1) + 1 by Fermat; 0 of 0."""
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
    """The elements of the highest place over axes."""
    axes = tuple(axis % x.ndim for axis in axes)
    kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
    shape = tuple(x.shape[axis] for axis in kept)
    x = x.transpose(*kept, *axes).reshape(*shape, -1)
    place = place.transpose(*kept, *axes).reshape(*shape, -1)
    best = np.argmax(place, axis=-1)[..., None]
    picked = np.take_along_axis(x, best, axis=-1)[..., 0]
    return np.expand_dims(picked, axes) if keepdims else picked


def _mix(x: np.ndarray) -> np.ndarray:
    """A bijection of 64 bits that looks random (the finalizer of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
