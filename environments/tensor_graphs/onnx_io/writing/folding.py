"""Fold constants: compute the values that depend on constants alone when a model is written."""

from __future__ import annotations

import numpy as np

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import CONSTANT, Node
from environments.tensor_graphs.onnx_io.tensors import is_numpy, size_bytes
from environments.tensor_graphs.operators.table import OPERATORS, evaluate

MAX_REPEATED_BYTES = 1 << 16
"""Larger tensors that only repeat others are not folded, so that files stay small."""

_REPEATING = ("Expand", "Tile")
_MOVING = ("Concat", "Expand", "Gather", "Pad", "Reshape", "Slice", "Split", "Tile", "Transpose")
"""Operators that compute nothing, and so need no higher precision."""

Value = tuple[np.ndarray, str]
"""An array and the dtype of the tensor that it holds."""


class ConstantFolder:
    """Computes the constants of a graph, each once.

    Floating-point numbers are computed in float64 and rounded once, at the end.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values: dict[int, list[Value] | None] = {}
        self._exact: dict[int, list[np.ndarray]] = {}
        self._foldable: dict[int, bool] = {}

    def values(self, number: int) -> list[Value] | None:
        """Return the values of a node's outputs, which become initialisers; None to keep a node."""
        if number not in self._values:
            self._values[number] = self._fold(number)
        return self._values[number]

    def _fold(self, number: int) -> list[Value] | None:
        node = self._graph.nodes[number]
        if not self._graph.is_constant(number) or not self._is_foldable(number):
            return None
        if self._repeats(node) and _num_bytes(node) > MAX_REPEATED_BYTES:
            return None
        try:
            with np.errstate(all="ignore"):
                arrays = self._computed(number)
        except (ArithmeticError, IndexError, ValueError):
            return None  # The node cannot be computed, so it is written as it was.
        finally:
            self._exact.clear()
        return [
            (array.astype(kind.dtype, copy=False) if is_numpy(kind.dtype) else array, kind.dtype)
            for array, kind in zip(arrays, node.types, strict=True)
            if kind is not None
        ]

    def _is_foldable(self, number: int) -> bool:
        if number not in self._foldable:
            node = self._graph.nodes[number]
            self._foldable[number] = _has_value(node) and all(map(self._is_foldable, node.used))
        return self._foldable[number]

    def _computed(self, number: int) -> list[np.ndarray]:
        if number not in self._exact:
            node = self._graph.nodes[number]
            if node.value is not None:
                self._exact[number] = [node.value]
            else:
                arrays = [self._computed(ref.node)[ref.output] for ref in node.inputs if ref]
                if node.op not in _MOVING:
                    arrays = [_widened(array) for array in arrays]
                self._exact[number] = list(evaluate(node.op, arrays, node.attributes))
        return self._exact[number]

    def _repeats(self, node: Node) -> bool:
        if node.op in _REPEATING:
            return True
        return node.op in _MOVING and all(
            self._repeats(self._graph.nodes[used]) for used in node.used
        )


def _num_bytes(node: Node) -> int:
    return sum(size_bytes(kind.dtype, kind.shape) for kind in node.types if kind)  # type: ignore[misc,arg-type]


def _has_value(node: Node) -> bool:
    """Return whether `OPERATORS` has a node's operator, and NumPy the types of its outputs."""
    if node.op == CONSTANT:
        return True
    return node.op in OPERATORS and all(
        kind is not None and kind.is_static and is_numpy(kind.dtype) for kind in node.types
    )


def _widened(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.kind == "f" else array
