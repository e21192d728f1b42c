"""A model that episodes start from: the context of tensor_graphs."""

from __future__ import annotations

import dataclasses
import pathlib

from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs.graph.graph import Graph


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A model that episodes start from.

    Attributes:
      name: a name for people to read.
      graph: the graph before any step.
    """

    name: str
    graph: Graph

    @classmethod
    def load(cls, name: str, seed: int = 0) -> Model:
        """Load a built-in model, or an ONNX file.

        Args:
          name: a built-in model, such as bert-tiny or transformers:7, or the path of a file.
          seed: seed of the random weights of a built-in model.

        Raises:
          UserError: there is no such model or file, or it cannot be read.
        """
        if models.is_built_in(name):
            return cls(name, onnx_io.read(models.make(name, seed)))
        return cls(name, onnx_io.read(pathlib.Path(name)))
