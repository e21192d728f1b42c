"""Find constants with equal values, however they were computed.

Rules make ever more expressions of constants: (W·s)·t and W·(s·t) are two of them. Their values are
computed in float64 and compared, so that equal weights form one class.
"""

from __future__ import annotations

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

    def twins(self, number: int, node: Node) -> list[tuple[Ref, Ref]]:
        """Add a node that depends on constants alone; pair its outputs with earlier equal ones."""
        twins = []
        for output, value in enumerate(self._compute(node)):
            ref = Ref(number, output)
            self._values[ref] = value
            if (twin := self._twin(ref, value, node.types[output])) is not None:
                twins.append((ref, twin))
        return twins

    def _compute(self, node: Node) -> list[np.ndarray]:
        """Return the values of a node's outputs; none if they cannot be computed."""
        if node.op == CONSTANT and node.value is not None:
            is_float = node.value.dtype.kind == "f"
            return [node.value.astype(np.float64) if is_float else node.value]
        inputs = [self._values[ref] for ref in node.inputs if ref in self._values]
        is_large = sum(array.size for array in inputs) > _MOST_ELEMENTS
        if node.op not in OPERATORS or len(inputs) < len(node.inputs) or is_large:
            return []
        try:
            with np.errstate(all="ignore"):
                return list(evaluate(node.op, inputs, node.attributes))
        except (ArithmeticError, IndexError, TypeError, ValueError):
            return []

    def _twin(self, ref: Ref, value: np.ndarray, kind: TensorType | None) -> Ref | None:
        if value.dtype.kind not in "fiub":
            return None
        # Random weighted sums are equal for equal values, and hardly ever for others.
        weights = np.random.default_rng(value.size).uniform(1, 2, (4, value.size))
        sketch = weights @ value.reshape(-1).astype(np.float64)
        sketches = self._sketches.setdefault((kind, value.size), [])
        for earlier, twin in sketches:
            if np.abs(sketch - earlier).max() <= _TOLERANCE * (1e-30 + np.abs(earlier).max()):
                return twin
        sketches.append((sketch, ref))
        return None
