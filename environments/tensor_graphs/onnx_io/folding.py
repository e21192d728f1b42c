"""What depends on constants alone is computed when a model is written."""

from __future__ import annotations

import numpy as np

from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.nodes import CONSTANT, Node
from environments.tensor_graphs.onnx_io.tensors import is_numpy, size_bytes
from environments.tensor_graphs.operators.table import OPERATORS, evaluate

MAX_REPEATED_BYTES = 1 << 16
"""Large tensors that only repeat others stay as they are, so that files stay small."""

_REPEATING = ("Expand", "Tile")
_MOVING = ("Concat", "Expand", "Gather", "Pad", "Reshape", "Slice", "Split", "Tile", "Transpose")
"""These compute nothing: they need not be exact."""

Value = tuple[np.ndarray, str]


class Folder:
    """Computes constants of a graph, each once.

    Numbers are computed in float64 and rounded once, at the end.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._exact: dict[int, list[np.ndarray]] = {}
        self._foldable: dict[int, bool] = {}

    def is_folded(self, number: int) -> bool:
        """Whether a node is written as initialisers, one for each output."""
        node = self._graph.nodes[number]
        if node.op == CONSTANT:
            return True
        if not self._graph.is_constant(number) or not self._is_foldable(number):
            return False
        return not (self._repeats(node) and _num_bytes(node) > MAX_REPEATED_BYTES)

    def values(self, number: int) -> list[Value]:
        """Array and dtype of each output of a node that is folded."""
        node = self._graph.nodes[number]
        found: list[Value] = []
        with np.errstate(all="ignore"):
            for array, tensor_type in zip(self._computed(number), node.types, strict=True):
                assert tensor_type is not None and tensor_type.shape == array.shape
                if is_numpy(tensor_type.dtype):
                    array = array.astype(tensor_type.dtype, copy=False)
                found.append((array, tensor_type.dtype))
        self._exact.clear()
        return found

    def _is_foldable(self, number: int) -> bool:
        """Whether a node can be computed, and all that it depends on."""
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
    return sum(size_bytes(one.dtype, one.shape) for one in node.types if one)  # type: ignore[misc,arg-type]


def _has_value(node: Node) -> bool:
    """Whether NumPy has the types of a node's outputs, and the table its meaning."""
    is_known = node.op == CONSTANT or (node.op in OPERATORS and None not in node.inputs)
    return is_known and all(
        one is not None and one.is_static and is_numpy(one.dtype) for one in node.types
    )


def _widened(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.kind == "f" else array
