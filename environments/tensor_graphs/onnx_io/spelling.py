"""How a node of a graph is written in a version of ONNX's operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from environments.tensor_graphs.nodes import Attribute, Node, TensorType


@dataclasses.dataclass(frozen=True)
class Spelling:
    """A node as a file has it.

    Attributes:
      attributes: by name.
      lists: what a file has as inputs behind the node's own; None where one is left out.
    """

    attributes: Mapping[str, Attribute]
    lists: Sequence[np.ndarray | None] = ()


def spelled(node: Node, types: Sequence[TensorType | None], opset: int) -> Spelling:
    """The spelling of a node."""
    return Spelling(dict(node.attributes))
