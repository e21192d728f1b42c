"""Save a graph as a model file, with large weights in a file beside it; copy a model's files.

Both files are complete before they take their place, or nothing changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO, Self

import numpy as np
import onnx

from environments import files
from environments.errors import UserError
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.onnx_io import scopes
from environments.tensor_graphs.onnx_io.reading import loading
from environments.tensor_graphs.onnx_io.tensors import (
    NUMBERS,
    DataPlace,
    dtype_of,
    external_bytes,
    external_path,
    raw_bytes,
    size_bytes,
    to_tensor,
)
from environments.tensor_graphs.onnx_io.writing.writer import Writer

Check = Callable[[pathlib.Path], None]
"""Raises an error if the model at a path is not as it should be."""

MAX_EMBEDDED_BYTES = 2_000_000_000
"""Protocol buffers end at 2 GiB, so the weights of larger models go into a file of their own."""

_ALIGNMENT = 4096
_MIN_EXTERNAL_BYTES = 1024


class _Staging:
    """The files of a model that is being written, under other names until they are complete.

    The name of the file with data is that of the model with a digest of the content. So it belongs
    to this model alone, and no file of another content is ever replaced by it.
    """

    def __init__(self, path: pathlib.Path) -> None:
        token = secrets.token_hex(4)
        self._path = path
        # onnxruntime tells formats by the suffix.
        self._model = path.with_name(f".{token}{path.suffix}")
        self._data = path.with_name(f".{token}.data")
        self._file: BinaryIO | None = None
        self._hash = hashlib.sha256()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what is left under other names."""
        try:
            if self._file is not None:
                self._file.close()  # On a full disk this fails again.
        finally:
            for path in (self._model, self._data):
                path.unlink(missing_ok=True)

    def append(self, name: str, array: np.ndarray, dtype: str) -> onnx.TensorProto:
        """Make a tensor whose data are in the file with data; small ones hold them themselves."""
        if dtype == "string" or array.nbytes < _MIN_EXTERNAL_BYTES:
            return to_tensor(name, array, dtype)
        tensor = onnx.TensorProto(name=name, data_type=NUMBERS[dtype], dims=array.shape)
        self.move(tensor, raw_bytes(array, dtype))
        return tensor

    def move(self, tensor: onnx.TensorProto, content: bytes | memoryview) -> None:
        """Put a tensor's data into the file with data; the tensor refers to them from now on."""
        if self._file is None:
            self._file = self._data.open("xb")
        offset = -(-self._file.tell() // _ALIGNMENT) * _ALIGNMENT
        self._file.seek(offset)
        self._file.write(content)
        # Other tensors of the same bytes may lie elsewhere.
        self._hash.update(f"{offset} {len(content)}:".encode())
        self._hash.update(content)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        del tensor.external_data[:]
        for key, value in (("location", ""), ("offset", offset), ("length", len(content))):
            tensor.external_data.add(key=key, value=str(value))

    def place(self, model: onnx.ModelProto | bytes, check_fn: Check | None = None) -> None:
        """Move the files to where they belong, those with data first, if `check_fn` is content."""
        with self._placed_data() as name:
            if isinstance(model, onnx.ModelProto):
                _set_location(model, name)
                model = _serialized(model, self._path)
            self._model.write_bytes(model)
            if check_fn is not None:
                check_fn(self._model)
            self._model.replace(self._path)

    @contextlib.contextmanager
    def _placed_data(self) -> Iterator[str]:
        """Move the file with data to its place, and away again if an error occurs."""
        if self._file is None:
            yield ""
            return
        self._file.close()
        name = f"{self._path.name}.{self._hash.hexdigest()[:16]}.data"
        path = self._path.with_name(name)
        # A file of this name has this content: what an earlier run wrote stays, come what may.
        is_new = not path.exists()
        self._data.replace(path)
        try:
            yield name
        except BaseException:
            if is_new:
                path.unlink(missing_ok=True)
            raise


def _set_location(model: onnx.ModelProto, name: str) -> None:
    for tensor in scopes.model_tensors(model):
        for entry in tensor.external_data:
            if entry.key == "location" and not entry.value:
                entry.value = name


def _serialized(model: onnx.ModelProto, path: pathlib.Path) -> bytes:
    try:
        return model.SerializeToString()
    except Exception as error:  # EncodeError or ValueError, by version of protobuf
        raise UserError(
            f"{path}: cannot be written: a model of more than 2 GB without its weights ({error})"
        ) from None


def save(
    graph: Graph,
    path: str | pathlib.Path,
    max_embedded_bytes: int = MAX_EMBEDDED_BYTES,
) -> None:
    """Save a graph as a model file; if that fails, an existing file stays as it was.

    Args:
      graph: the graph.
      path: path of the file.
      max_embedded_bytes: if the weights together are larger than this, they go into a file beside
        the model (`_Staging`).

    Raises:
      UserError: the graph's opset lacks one of the operators, or the file cannot be written.
    """
    path = pathlib.Path(path)
    writer = Writer(graph)
    try:
        with _Staging(path) as staging:
            is_small = writer.size_bytes <= max_embedded_bytes
            model = writer.model(to_tensor if is_small else staging.append)
            staging.place(model)
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

    `shapes` are those that inputs of the copy have, by name. `check_fn` gets the path of the
    complete model before it is moved to its place; what it raises leaves everything as it was.

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
        with _Staging(path) as staging:
            for tensor in [] if is_beside else outside:
                expected = size_bytes(dtype_of(tensor), tuple(tensor.dims))
                staging.move(tensor, external_bytes(tensor, place, expected).data)
            is_changed = shapes is not None or (outside and not is_beside)
            staging.place(model if is_changed else files.read_bytes(source), check_fn)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None
