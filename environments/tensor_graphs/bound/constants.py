"""Find constants with equal values, however they were computed.

Rules make ever more expressions of constants: (W·s)·t and W·(s·t) are two of them. Their values are
computed in float64 and compared, so that equal weights form one class.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from environments.tensor_graphs.graph.nodes import CONSTANT, Node, Ref, TensorType
from environments.tensor_graphs.operators.table import OPERATORS, evaluate

# Rounding errors in float64 are a thousand times smaller, and different weights differ by far more.
_TOLERANCE = 1e-10
_MOST_ELEMENTS = 1 << 22


class Constants:
    """The values of the constants added so far."""

    def __init__(self) -> None:
        self._values: dict[Ref, np.ndarray] = {}
        self._sketches: dict[tuple[TensorType | None, int], list[tuple[np.ndarray, Ref]]] = {}

    def twins(self, number: int, node: Node, name_fn: Callable[[Ref], Ref]) -> list[Ref | None]:
        """Add a node that depends on constants alone, and find earlier outputs with its values.

        Args:
          number: number of the node.
          node: the node.
          name_fn: maps an output to one that has the same values and whose values are known.

        Returns:
          For each output an earlier output with the same values; None if there is none. Empty if
          the values cannot be computed.
        """
        values = self._compute(node, name_fn)
        twins: list[Ref | None] = []
        for output, value in enumerate(values):
            ref = Ref(number, output)
            self._values[ref] = value
            twins.append(self._twin(ref, value, node.types[output]))
        return twins

    def _compute(self, node: Node, name_fn: Callable[[Ref], Ref]) -> list[np.ndarray]:
        if node.op == CONSTANT:
            return [] if node.value is None else [_wide(node.value)]
        if node.op not in OPERATORS:
            return []
        inputs: list[np.ndarray] = []
        for ref in node.inputs:
            value = None if ref is None else self._values.get(name_fn(ref))
            if value is None:
                return []
            inputs.append(value)
        if sum(array.size for array in inputs) > _MOST_ELEMENTS:
            return []
        try:
            with np.errstate(all="ignore"):
                return list(evaluate(node.op, inputs, node.attributes))
        except (ArithmeticError, IndexError, TypeError, ValueError):
            return []

    def _twin(self, ref: Ref, value: np.ndarray, kind: TensorType | None) -> Ref | None:
        if value.dtype.kind not in "fiub":
            return None
        sketch = _sketch(value)
        sketches = self._sketches.setdefault((kind, value.size), [])
        for earlier, twin in sketches:
            if np.abs(sketch - earlier).max() <= _TOLERANCE * (1e-30 + np.abs(earlier).max()):
                return twin
        sketches.append((sketch, ref))
        return None


def _wide(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def _sketch(value: np.ndarray) -> np.ndarray:
    """Return a few random weighted sums; they are equal for equal values and hardly ever else."""
    flat = value.reshape(-1).astype(np.float64)
    random = np.random.default_rng(flat.size)
    return random.uniform(1, 2, (4, flat.size)) @ flat
