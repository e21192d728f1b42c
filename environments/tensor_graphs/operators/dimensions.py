"""Compute with sizes of tensors, known or named.

A size that is not known is a polynomial in names with integer coefficients. There is only one way
to write it ("128*N", "N+S", "2*N-1"), so sizes are equal exactly if their texts are. A quotient
that is rounded down counts as a name: "((H+1)//2)". A name that is not an identifier is put in
braces within a longer text: "2*{past length}".
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeGuard

from environments.tensor_graphs.graph.nodes import Dimension

Monomial = tuple[str, ...]
Polynomial = Mapping[Monomial, int]

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][\w.]*)|(\{[^{}]*\})|(//|[-+*()]))")
_NAME = re.compile(r"[A-Za-z_][\w.]*")


def product(sizes: Iterable[Dimension]) -> Dimension:
    """Multiply sizes; the product of none is 1."""
    sizes = tuple(sizes)
    return math.prod(sizes) if _are_numbers(sizes) else _product(sizes)


def total(sizes: Iterable[Dimension]) -> Dimension:
    """Add sizes; the sum of none is 0."""
    sizes = tuple(sizes)
    return sum(sizes) if _are_numbers(sizes) else _total(sizes)


def _are_numbers(sizes: tuple[Dimension, ...]) -> TypeGuard[tuple[int, ...]]:
    return all(isinstance(size, int) for size in sizes)


def quotient(size: Dimension, divisor: Dimension) -> Dimension:
    """Divide a size by a divisor of it.

    Raises:
      ValueError: the size cannot be divided without a remainder.
    """
    if isinstance(size, int) and isinstance(divisor, int):
        if divisor == 0 or size % divisor:
            raise ValueError(f"{size} cannot be divided by {divisor}")
        return size // divisor
    return _quotient(size, divisor)


def rounded_down(size: Dimension, divisor: int) -> Dimension:
    """Divide a size by a number, rounding down."""
    return size // divisor if isinstance(size, int) else _rounded_down(size, divisor)


def is_name(size: Dimension) -> bool:
    """Return whether a size is a single name."""
    return isinstance(size, str) and _NAME.fullmatch(size) is not None


def value(size: Dimension, sizes: Mapping[str, int]) -> int:
    """Work out a size: with N = 2, "128*N" is 256. A name that is not given stands for 1."""
    if isinstance(size, int):
        return size
    if size in sizes:
        return sizes[size]
    return sum(
        number * math.prod(_value_of_name(name, sizes) for name in monomial)
        for monomial, number in _parse(size).items()
    )


def _value_of_name(name: str, sizes: Mapping[str, int]) -> int:
    if name.startswith("(("):
        size, _, divisor = name[2:-1].rpartition(")//")
        return value(size, sizes) // int(divisor)
    return sizes.get(name.strip("{}"), 1)


@functools.lru_cache(maxsize=1 << 14)
def _product(sizes: tuple[Dimension, ...]) -> Dimension:
    return _text(functools.reduce(_times, map(_polynomial, sizes)))


@functools.lru_cache(maxsize=1 << 14)
def _total(sizes: tuple[Dimension, ...]) -> Dimension:
    return _text(functools.reduce(_plus, map(_polynomial, sizes)))


@functools.lru_cache(maxsize=1 << 14)
def _quotient(size: Dimension, divisor: Dimension) -> Dimension:
    above, below = _polynomial(size), _polynomial(divisor)
    if below and above == below:
        return 1
    if len(below) != 1:
        raise ValueError(f"{size} cannot be divided by {divisor}")
    ((names, number),) = below.items()
    result: dict[Monomial, int] = {}
    for monomial, factor in above.items():
        left = list(monomial)
        for name in names:
            if name not in left:
                raise ValueError(f"{size} cannot be divided by {divisor}")
            left.remove(name)
        if factor % number:
            raise ValueError(f"{size} cannot be divided by {divisor}")
        result[tuple(left)] = factor // number
    return _text(result)


@functools.lru_cache(maxsize=1 << 14)
def _rounded_down(size: str, divisor: int) -> Dimension:
    return _text(_floor(_parse(size), divisor))


def _floor(size: Polynomial, divisor: int) -> Polynomial:
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, factor in size.items():
        whole[monomial], rest[monomial] = divmod(factor, divisor)
    rest = {monomial: factor for monomial, factor in rest.items() if factor}
    if not set(rest) - {()}:
        return _plus(whole, {})
    return _plus(whole, {(f"(({_text(rest)})//{divisor})",): 1})


def _polynomial(size: Dimension) -> Polynomial:
    if isinstance(size, int):
        return {(): size} if size else {}
    return _parse(size)


def _times(left: Polynomial, right: Polynomial) -> Polynomial:
    result: dict[Monomial, int] = {}
    for first, number in left.items():
        for second, factor in right.items():
            monomial = tuple(sorted((*first, *second)))
            result[monomial] = result.get(monomial, 0) + number * factor
    return {monomial: number for monomial, number in result.items() if number}


def _plus(left: Polynomial, right: Polynomial, sign: int = 1) -> Polynomial:
    result = dict(left)
    for monomial, number in right.items():
        result[monomial] = result.get(monomial, 0) + sign * number
    return {monomial: number for monomial, number in result.items() if number}


def _text(polynomial: Polynomial) -> Dimension:
    """Write a polynomial, longer monomials first; return a number if it has no names."""
    if not polynomial:
        return 0
    if set(polynomial) == {()}:
        return polynomial[()]
    if list(polynomial.values()) == [1]:
        (monomial,) = polynomial
        if len(monomial) == 1 and monomial[0].startswith("{"):
            return monomial[0][1:-1]
    text = ""
    for monomial in sorted(polynomial, key=lambda monomial: (-len(monomial), monomial)):
        number = polynomial[monomial]
        factors = [str(abs(number))] if abs(number) != 1 or not monomial else []
        sign = "-" if number < 0 else "+" if text else ""
        text += sign + "*".join([*factors, *monomial])
    return text


@functools.lru_cache(maxsize=1 << 14)
def _parse(text: str) -> Polynomial:
    """Parse the text of a size; a text that is not a polynomial counts as a name."""
    try:
        return _Reader(text).polynomial()
    except (ValueError, ZeroDivisionError):
        return {("{" + text.replace("{", "(").replace("}", ")") + "}",): 1}


class _Reader:
    """Parses a polynomial by recursive descent; raises ValueError if the text is not one."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))

    def polynomial(self) -> Polynomial:
        result = self._sum()
        self._expect("")
        return result

    def _sum(self) -> Polynomial:
        sign = -1 if self._accept("-") else 1
        result = _plus({}, self._term(), sign)
        while (token := self._accept("+", "-")) is not None:
            result = _plus(result, self._term(), -1 if token == "-" else 1)
        return result

    def _term(self) -> Polynomial:
        result = self._factor()
        while self._accept("*"):
            result = _times(result, self._factor())
        return result

    def _factor(self) -> Polynomial:
        token = self._tokens.pop(0)
        if token.isdigit():
            return {(): int(token)} if int(token) else {}
        if token.startswith("{") or _NAME.fullmatch(token):
            return {(token,): 1}
        if token != "(":
            raise ValueError(token)
        result = self._sum()
        self._expect(")")
        if self._accept("//"):
            result = _floor(result, int(self._tokens.pop(0)))
        return result

    def _accept(self, *tokens: str) -> str | None:
        return self._tokens.pop(0) if self._tokens[0] in tokens else None

    def _expect(self, token: str) -> None:
        if self._tokens.pop(0) != token:
            raise ValueError(token)


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(text)
        yield match.group(match.lastindex or 0)
        position = match.end()
    yield ""
