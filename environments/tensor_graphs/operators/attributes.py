"""Check and convert values of attributes; the name of an attribute decides the kind of value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import Attribute, Dimension

_NUMBERS = "alpha beta epsilon gamma max min value"
_INTEGERS = "axis end start"
_COUNTS = "blocksize group"
_SWITCHES = "ceil_mode count_include_pad keepdims transA transB"
_TEXTS = "approximate mode to"
_INTEGER_LISTS = "axes ends pads perm split starts output_padding"
_COUNT_LISTS = "dilations kernel_shape repeats steps strides"
_SIZE_LISTS = "shape"


def canonical(name: str, value: Any) -> Attribute:
    """Convert an attribute's value to its canonical form.

    Raises:
      ValueError: attributes of this name take another kind of value.
    """
    return _KINDS[name](name, value)


def hashable(value: Any) -> Any:
    """Convert lists and NumPy's types to tuples and Python's types."""
    if isinstance(value, list | tuple):
        return tuple([hashable(item) for item in value])
    if isinstance(value, np.ndarray | np.generic):
        return hashable(value.tolist())
    return value


def _number(name: str, value: Any) -> float:
    """Round a number to float32, and turn -0 into 0."""
    if not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"expected a number as {name}, found {value!r}")
    with np.errstate(over="ignore"):
        return float(np.float32(value)) + 0.0


def _integer(name: str, value: Any, smallest: int | None = None) -> int:
    if not isinstance(value, int | float) or value != value // 1:
        raise ValueError(f"expected an integer as {name}, found {value!r}")
    if smallest is not None and value < smallest:
        raise ValueError(f"expected {smallest} or more as {name}, found {value!r}")
    return int(value)


def _count(name: str, value: Any) -> int:
    return _integer(name, value, smallest=1)


def _switch(name: str, value: Any) -> int:
    return int(_integer(name, value) != 0)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text as {name}, found {value!r}")
    return value


def _list(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, tuple):
        raise ValueError(f"expected a list as {name}, found {value!r}")
    return value


def _integers(name: str, value: Any) -> tuple[int, ...]:
    return tuple([_integer(name, item) for item in _list(name, value)])


def _counts(name: str, value: Any) -> tuple[int, ...]:
    return tuple([_integer(name, item, smallest=1) for item in _list(name, value)])


def _sizes(name: str, value: Any) -> tuple[Dimension, ...]:
    return tuple(
        [item if isinstance(item, str) else _integer(name, item, -1) for item in _list(name, value)]
    )


_KINDS: Mapping[str, Any] = {
    name: kind
    for names, kind in (
        (_NUMBERS, _number),
        (_INTEGERS, _integer),
        (_COUNTS, _count),
        (_SWITCHES, _switch),
        (_TEXTS, _text),
        (_INTEGER_LISTS, _integers),
        (_COUNT_LISTS, _counts),
        (_SIZE_LISTS, _sizes),
    )
    for name in names.split()
}
