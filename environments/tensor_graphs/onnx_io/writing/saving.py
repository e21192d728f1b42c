"""Save a graph as a model file, and large weights in a file beside it."""

from __future__ import annotations

import pathlib

from environments.errors import UserError
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.onnx_io.tensors import to_tensor
from environments.tensor_graphs.onnx_io.writing.staging import Check, Staging
from environments.tensor_graphs.onnx_io.writing.writer import Writer

MAX_EMBEDDED_BYTES = 2_000_000_000
"""Protocol buffers end at 2 GiB, so the weights of larger models go into a file of their own."""


def save(
    graph: Graph,
    path: str | pathlib.Path,
    max_embedded_bytes: int = MAX_EMBEDDED_BYTES,
    check_fn: Check | None = None,
) -> None:
    """Save a graph as a model file; if that fails, an existing file stays as it was.

    Args:
      graph: the graph.
      path: path of the file.
      max_embedded_bytes: if the weights together are larger than this, they go into a file beside
        the model (`Staging`).
      check_fn: called with the path of the complete model before it is moved to its place; what
        it raises leaves everything as it was.

    Raises:
      UserError: the graph's opset lacks one of the operators, or the file cannot be written.
    """
    path = pathlib.Path(path)
    writer = Writer(graph)
    try:
        with Staging(path) as staging:
            is_small = writer.size_bytes <= max_embedded_bytes
            model = writer.model(to_tensor if is_small else staging.append)
            staging.place(model, check_fn)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None
