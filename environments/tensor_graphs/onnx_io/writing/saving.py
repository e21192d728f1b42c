"""Save a graph as a model file, with large weights in a file beside it; copy a model's files."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

import onnx

from environments import files
from environments.errors import UserError
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.onnx_io import scopes
from environments.tensor_graphs.onnx_io.reading import loading
from environments.tensor_graphs.onnx_io.tensors import (
    DataPlace,
    dtype_of,
    external_bytes,
    external_path,
    size_bytes,
    to_tensor,
)
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


def copy(
    source: pathlib.Path,
    path: pathlib.Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    check_fn: Check | None = None,
) -> None:
    """Copy a model's file; if that fails, an existing file stays as it was.

    Data in other files are found by their names relative to the model. In the same directory, the
    copy uses those of the source, unless they are links to files elsewhere. Otherwise they are
    copied into a file of the copy's own.

    `shapes` are those that inputs of the copy have, by name; `check_fn` is as for `save`.

    Raises:
      UserError: the source is not a model, lacks data, or has data outside of its directory; or
        the copy cannot be written.
    """
    model = loading.parsed(source)
    if shapes is not None:
        model = loading.frozen(model, shapes)
    outside = [
        tensor
        for tensor in scopes.model_tensors(model)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    ]
    place = DataPlace.of(source)
    directory = path.parent.resolve()
    is_beside = place.directory == directory
    for tensor in outside:
        is_beside &= external_path(tensor, place).resolve().is_relative_to(directory)
    try:
        with Staging(path) as staging:
            for tensor in [] if is_beside else outside:
                expected = size_bytes(dtype_of(tensor), tuple(tensor.dims))
                staging.move(tensor, external_bytes(tensor, place, expected).data)
            is_changed = shapes is not None or (outside and not is_beside)
            staging.place(model if is_changed else files.read_bytes(source), check_fn)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None
