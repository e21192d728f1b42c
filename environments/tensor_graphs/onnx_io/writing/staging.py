"""Write a model's file and a file with its data: both complete, or nothing changes."""

from __future__ import annotations

import contextlib
import hashlib
import pathlib
import secrets
from collections.abc import Callable, Iterator
from typing import BinaryIO, Self

import numpy as np
import onnx

from environments.errors import UserError
from environments.tensor_graphs.onnx_io import scopes
from environments.tensor_graphs.onnx_io.tensors import NUMBERS, raw_bytes, to_tensor

Check = Callable[[pathlib.Path], None]
"""Raises an error if the model at a path is not as it should be."""

_ALIGNMENT = 4096
_MIN_EXTERNAL_BYTES = 1024


class Staging:
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
        """Begin; the directory of the path must exist."""
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

    def place(self, model: onnx.ModelProto | bytes, check_fn: Check | None) -> None:
        """Move the files to where they belong, those with data first.

        `check_fn` is called with the path of the model before it is moved; what it raises leaves
        everything as it was.

        Raises:
          UserError: the model is larger than files can be.
        """
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
