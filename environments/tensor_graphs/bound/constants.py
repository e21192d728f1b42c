"""Which constants are the same, whatever they were computed from.

Rules make new constants without end: (W·s)·t and W·(s·t) are two expressions. What both are is
computed, in float64, and compared, so that one weight is one class however it came about.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from environments.tensor_graphs.graph.nodes import CONSTANT, Node, Ref, TensorType
from environments.tensor_graphs.operators.table import OPERATORS, evaluate

# Rounding in float64 is a thousand times less than this, and two weights differ by far more.
_TOLERANCE = 1e-10
_MOST_ELEMENTS = 1 << 22


class Constants:
    """Values of constants."""

    def __init__(self) -> None:
        self._values: dict[Ref, np.ndarray] = {}
        self._known: dict[tuple[TensorType | None, int], list[tuple[np.ndarray, Ref]]] = {}

    def twins(self, number: int, node: Node, name_fn: Callable[[Ref], Ref]) -> list[Ref | None]:
        """For each output of a constant node: one that was added before and has the same values.

        Args:
          number: of the node.
          node: depends on constants alone.
          name_fn: finds an output whose values are known and the same.
        """
        values = self._compute(node, name_fn)
        found: list[Ref | None] = []
        for output, value in enumerate(values):
            ref = Ref(number, output)
            self._values[ref] = value
            found.append(self._twin(ref, value, node.types[output]))
        return found

    def _compute(self, node: Node, name_fn: Callable[[Ref], Ref]) -> list[np.ndarray]:
        if node.op == CONSTANT:
            return [] if node.value is None else [_wide(node.value)]
        if node.op not in OPERATORS:
            return []
        given: list[np.ndarray] = []
        for ref in node.inputs:
            value = None if ref is None else self._values.get(name_fn(ref))
            if value is None:
                return []
            given.append(value)
        if sum(one.size for one in given) > _MOST_ELEMENTS:
            return []
        try:
            with np.errstate(all="ignore"):
                return list(evaluate(node.op, given, node.attributes))
        except (ArithmeticError, IndexError, TypeError, ValueError):
            return []

    def _twin(self, ref: Ref, value: np.ndarray, kind: TensorType | None) -> Ref | None:
        if value.dtype.kind not in "fiub":
            return None
        sketch = _sketch(value)
        known = self._known.setdefault((kind, value.size), [])
        for other, twin in known:
            if np.abs(sketch - other).max() <= _TOLERANCE * (1e-30 + np.abs(other).max()):
                return twin
        known.append((sketch, ref))
        return None


def _wide(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def _sketch(value: np.ndarray) -> np.ndarray:
    """A few random sums: equal where the values are, and hardly ever elsewhere."""
    flat = value.reshape(-1).astype(np.float64)
    random = np.random.default_rng(flat.size)
    return random.uniform(1, 2, (4, flat.size)) @ flat
