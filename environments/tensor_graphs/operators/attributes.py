"""Check and convert values of attributes; the name of an attribute decides the kind of value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import Attribute, Dimension

_NUMBERS = "scale alpha beta epsilon gamma max min value"
_INTEGERS = "axis end start"
_COUNTS = "num_heads blocksize group"
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


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text as {name}, found {value!r}")
    return value


def _size(name: str, value: Any) -> Dimension:
    return value if isinstance(value, str) else _integer(name, value, -1)


def _list_of(kind: Callable[[str, Any], Any]) -> Callable[[str, Any], tuple[Any, ...]]:
    def canonical_list(name: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple):
            raise ValueError(f"expected a list as {name}, found {value!r}")
        return tuple([kind(name, item) for item in value])

    return canonical_list


_KINDS: Mapping[str, Callable[[str, Any], Attribute]] = {
    name: kind
    for names, kind in (
        (_NUMBERS, _number),
        (_INTEGERS, _integer),
        (_COUNTS, lambda name, value: _integer(name, value, smallest=1)),
        (_SWITCHES, lambda name, value: int(_integer(name, value) != 0)),
        (_TEXTS, _text),
        (_INTEGER_LISTS, _list_of(_integer)),
        (_COUNT_LISTS, _list_of(lambda name, value: _integer(name, value, smallest=1))),
        (_SIZE_LISTS, _list_of(_size)),
    )
    for name in names.split()
}
