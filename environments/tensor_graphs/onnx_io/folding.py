"""What depends on constants alone is computed when a model is written."""

from __future__ import annotations

import numpy as np

from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.nodes import CONSTANT


class Folder:
    """Computes constants of a graph, each once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def is_folded(self, number: int) -> bool:
        """Whether a node is written as an initialiser."""
        return self._graph.nodes[number].op == CONSTANT

    def values(self, number: int) -> list[tuple[np.ndarray, str]]:
        """Array and dtype of each output of a node that is folded."""
        node = self._graph.nodes[number]
        assert node.value is not None and node.types[0] is not None
        return [(node.value, node.types[0].dtype)]
