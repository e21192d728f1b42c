"""Convert between arrays and the tensors of ONNX files.

NumPy lacks some of ONNX's element types. A tensor of such a type is an array of unsigned integers
that hold the bits of its elements (bfloat16 in uint16, float8e4m3fn and int4 in uint8, one element
each), and its dtype is ONNX's name in lower case.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
from collections.abc import Mapping

import numpy as np
import onnx

from environments.errors import UserError

_NUMPY_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}
DTYPES: Mapping[int, str] = {
    number: _NUMPY_NAMES.get(name, name.lower())
    for name, number in onnx.TensorProto.DataType.items()
    if name != "UNDEFINED"
}
"""Names of element types by ONNX's numbers."""

NUMBERS: Mapping[str, int] = {name: number for number, name in DTYPES.items()}
"""ONNX's numbers of element types by name."""

_BITS = {"uint4": 4, "int4": 4, "float4e2m1": 4, "uint2": 2, "int2": 2}
_IN_NUMPY = {
    *("float16", "float32", "float64", "bool", "complex64", "complex128"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_MIN_MAPPED_BYTES = 1 << 16


@dataclasses.dataclass(frozen=True)
class DataPlace:
    """Where a model's data in other files may be.

    Attributes:
      directory: the directory of the model's file; names of files are relative to it.
      real: the directory of the file that the model's file is a link to, or the same. Caches keep
        files under digests of their content, and links by the right names elsewhere.
    """

    directory: pathlib.Path
    real: pathlib.Path

    @classmethod
    def of(cls, model: pathlib.Path) -> DataPlace:
        """Return the place of the data of the model in a file."""
        return cls(model.parent.resolve(), model.resolve().parent)


def is_numpy(dtype: str) -> bool:
    """Return whether NumPy can compute with an element type."""
    return dtype in _IN_NUMPY


def storage(dtype: str) -> np.dtype:
    """Return the dtype of the array that holds a tensor of this element type."""
    if dtype in _IN_NUMPY:
        return np.dtype(dtype)
    if dtype == "string":
        return np.dtype(object)
    return np.dtype(np.uint16 if dtype == "bfloat16" else np.uint8)


def size_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Return how many bytes a tensor takes in a file."""
    count = math.prod(shape)
    return -(-count * _BITS[dtype] // 8) if dtype in _BITS else count * storage(dtype).itemsize


def dtype_of(tensor: onnx.TensorProto) -> str:
    """Return the name of a tensor's element type.

    Raises:
      UserError: the installed onnx does not know the type.
    """
    if tensor.data_type not in DTYPES:
        raise UserError(
            f"tensor {tensor.name!r}: element type {tensor.data_type} is unknown to onnx "
            f"{onnx.__version__}; install a newer onnx"
        )
    return DTYPES[tensor.data_type]


def to_array(tensor: onnx.TensorProto, place: DataPlace | None) -> np.ndarray:
    """Return the array that a tensor holds.

    Raises:
      UserError: the data are missing, are outside of the directory, or do not fit the shape.
    """
    dtype, shape = dtype_of(tensor), tuple(tensor.dims)
    if any(size < 0 for size in shape):
        raise UserError(f"tensor {tensor.name!r}: expected sizes of 0 or more, found {list(shape)}")
    if dtype == "string":
        flat = np.empty(len(tensor.string_data), object)
        flat[:] = list(tensor.string_data)
        return _shaped(tensor, flat, shape)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raw = external_bytes(tensor, place, size_bytes(dtype, shape))
    elif tensor.HasField("raw_data"):
        raw = np.frombuffer(tensor.raw_data, np.uint8)
    elif dtype in _IN_NUMPY:
        return _shaped(tensor, _typed_field(tensor, dtype), shape)
    else:
        raw = np.array(tensor.int32_data, np.int64).astype(storage(dtype)).view(np.uint8)
    if len(raw) != size_bytes(dtype, shape):
        raise _wrong_size(tensor, f"{size_bytes(dtype, shape)} bytes", f"{len(raw)}")
    if dtype in _BITS:
        return _unpacked(raw, _BITS[dtype], math.prod(shape)).reshape(shape)
    return raw.view(storage(dtype)).reshape(shape)


def to_tensor(name: str, array: np.ndarray, dtype: str) -> onnx.TensorProto:
    """Make the tensor that holds an array of the dtype that `storage` returns."""
    tensor = onnx.TensorProto(name=name, data_type=NUMBERS[dtype], dims=array.shape)
    if dtype == "string":
        tensor.string_data.extend(
            item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1)
        )
    else:
        tensor.raw_data = raw_bytes(array, dtype)
    return tensor


def raw_bytes(array: np.ndarray, dtype: str) -> bytes:
    """Return the bytes of a tensor's elements in ONNX's layout."""
    if dtype in _BITS:
        return _packed(array.reshape(-1), _BITS[dtype])
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def external_path(tensor: onnx.TensorProto, place: DataPlace | None) -> pathlib.Path:
    """Return the path of the file with a tensor's data.

    Raises:
      UserError: the file is missing or outside of the model's directory.
    """
    location = {entry.key: entry.value for entry in tensor.external_data}.get("location", "")
    about = f"tensor {tensor.name!r}: its data are in the file {location!r}"
    if place is None:
        raise UserError(f"{about}; give the path of the model, which says where that is")
    root = place.directory
    # This keeps names of links, which are those of the model's other copies.
    path = pathlib.Path(os.path.normpath(root / location.replace("\0", "?")))
    is_inside = any(path.resolve().is_relative_to(directory) for directory in (root, place.real))
    if not location or not path.is_relative_to(root) or not is_inside:
        raise UserError(f"{about}, which is outside of the model's directory {root}")
    if not path.is_file():
        raise UserError(f"{about}, which is missing in {root}; put it beside the model")
    return path


def external_bytes(tensor: onnx.TensorProto, place: DataPlace | None, expected: int) -> np.ndarray:
    """Return a tensor's bytes, uint8 [expected], from another file.

    Large tensors are memory-mapped, not read.

    Raises:
      UserError: the file is missing, outside of the model's directory, or too short, or it cannot
        be read.
    """
    path = external_path(tensor, place)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries.get("length") or expected)
    except ValueError:
        raise UserError(
            f"tensor {tensor.name!r}: expected numbers for the offset and length of its external "
            f"data, found {entries}; the model is damaged"
        ) from None
    if offset < 0 or length != expected or offset + length > path.stat().st_size:
        raise _wrong_size(
            tensor,
            f"{expected} bytes at {offset} of {path.name}",
            f"{length} of a file of {path.stat().st_size}",
        )
    try:
        if length < _MIN_MAPPED_BYTES:
            with path.open("rb") as file:
                file.seek(offset)
                return np.frombuffer(file.read(length), np.uint8)
        return np.memmap(path, np.uint8, "r", offset, (length,))
    except OSError as error:
        raise UserError(
            f"tensor {tensor.name!r}: {path} cannot be read: {error.strerror}"
        ) from None


def to_dense(tensor: onnx.SparseTensorProto, place: DataPlace | None) -> np.ndarray:
    """Return the dense array of a sparse tensor.

    Raises:
      UserError: an index is out of bounds, or the array does not fit into memory.
    """
    values = to_array(tensor.values, place)
    indices = to_array(tensor.indices, place)
    shape = tuple(tensor.dims)
    try:
        dense = np.zeros(shape, values.dtype)
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
    except (IndexError, MemoryError, ValueError) as error:
        raise UserError(f"sparse tensor {tensor.values.name!r}: {error}") from None
    return dense


def _typed_field(tensor: onnx.TensorProto, dtype: str) -> np.ndarray:
    stored = onnx.helper.tensor_dtype_to_storage_tensor_dtype(tensor.data_type)
    values = getattr(tensor, onnx.helper.tensor_dtype_to_field(tensor.data_type))
    numbers = np.array(values, onnx.helper.tensor_dtype_to_np_dtype(stored))
    # The bits of a float16 are stored as an integer, and complex numbers as pairs.
    if dtype == "float16":
        return numbers.astype(np.uint16).view(np.float16)
    return numbers.view(dtype) if dtype.startswith("complex") else numbers.astype(dtype)


def _shaped(tensor: onnx.TensorProto, flat: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if len(flat) != math.prod(shape):
        raise _wrong_size(tensor, f"{math.prod(shape)} elements", f"{len(flat)}")
    return flat.reshape(shape)


def _wrong_size(tensor: onnx.TensorProto, expected: str, actual: str) -> UserError:
    return UserError(
        f"tensor {tensor.name!r} of shape {list(tensor.dims)}: expected {expected}, found {actual};"
        " the model is damaged"
    )


def _unpacked(raw: np.ndarray, bits: int, count: int) -> np.ndarray:
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((raw[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:count].astype(np.uint8)


def _packed(codes: np.ndarray, bits: int) -> bytes:
    per_byte = 8 // bits
    rows = np.pad(codes, (0, -len(codes) % per_byte)).reshape(-1, per_byte)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(rows << shifts, axis=1).astype(np.uint8).tobytes()
