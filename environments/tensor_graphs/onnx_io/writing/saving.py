"""Save a graph as a model file, and large weights in a file beside it."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import pathlib
import secrets
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import onnx

from environments.errors import UserError
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.onnx_io import scopes
from environments.tensor_graphs.onnx_io.tensors import NUMBERS, raw_bytes, to_tensor
from environments.tensor_graphs.onnx_io.writing.writer import Writer

MAX_EMBEDDED_BYTES = 2_000_000_000
"""Protocol buffers end at 2 GiB, so the weights of larger models go into a file of their own."""

_ALIGNMENT = 4096
_MIN_EXTERNAL_BYTES = 1024


def save(
    graph: Graph, path: str | pathlib.Path, max_embedded_bytes: int = MAX_EMBEDDED_BYTES
) -> None:
    """Save a graph as a model file; if that fails, an existing file stays as it was.

    Args:
      graph: the graph.
      path: path of the file.
      max_embedded_bytes: if the weights together are larger than this, they go into a file beside
        the model. That file's name contains a digest of its content, so a model can never pick up
        the weights of another one.

    Raises:
      UserError: the graph's opset lacks one of the operators, or the file cannot be written.
    """
    path = pathlib.Path(path)
    writer = Writer(graph)
    try:
        if writer.size_bytes <= max_embedded_bytes:
            model = writer.model(to_tensor)
        else:
            model = _with_external_weights(writer, path)
        with _replacing(path) as file:
            file.write(model.SerializeToString())
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None


def _with_external_weights(writer: Writer, path: pathlib.Path) -> onnx.ModelProto:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.data")
    try:
        with temporary.open("xb") as file:
            weights = _Weights(file)
            model = writer.model(weights.append)
        name = f"{path.name}.{weights.digest}.data"
        inner = (one for node in model.graph.node for one in scopes.tensors(node))
        for tensor in itertools.chain(model.graph.initializer, inner):
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = name
        temporary.replace(path.with_name(name))
    finally:
        temporary.unlink(missing_ok=True)
    return model


class _Weights:
    """Writes tensors one after another into a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Digest of all tensors so far."""
        return self._hash.hexdigest()[:16]

    def append(self, name: str, array: np.ndarray, dtype: str) -> onnx.TensorProto:
        """Write an array; return a tensor that refers to it, or that holds it if it is small."""
        if dtype == "string" or array.nbytes < _MIN_EXTERNAL_BYTES:
            return to_tensor(name, array, dtype)
        raw = raw_bytes(array, dtype)
        offset = -(-self._file.tell() // _ALIGNMENT) * _ALIGNMENT
        self._file.seek(offset)
        self._file.write(raw)
        self._hash.update(raw)
        tensor = onnx.TensorProto(name=name, data_type=NUMBERS[dtype], dims=array.shape)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", ""), ("offset", offset), ("length", len(raw))):
            tensor.external_data.add(key=key, value=str(value))
        return tensor


@contextlib.contextmanager
def _replacing(path: pathlib.Path) -> Iterator[BinaryIO]:
    """Open a file that replaces the one at `path` once it is completely written."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
