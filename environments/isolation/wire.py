"""Values on a socket: a header in JSON, followed by the bytes of all arrays.

Nothing is pickled. A value is None, a truth value, a number, a text, bytes, an array, or a list or
dict of values; a dict may have any scalars as keys, as onnxruntime's maps do.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

import numpy as np

_SIZES = struct.Struct("<QQ")


def send(end: socket.socket, value: Any) -> None:
    """Send a value.

    Raises:
      OSError: the other end is closed.
    """
    parts: list[memoryview] = []
    header = json.dumps(_packed(value, parts)).encode()
    end.sendall(_SIZES.pack(len(header), sum(part.nbytes for part in parts)) + header)
    for part in parts:
        end.sendall(part)


def receive(end: socket.socket) -> Any:
    """Return the next value.

    Raises:
      EOFError: the other end is closed.
      OSError: it was closed while it sent.
    """
    header_bytes, data_bytes = _SIZES.unpack(_read(end, _SIZES.size))
    header = json.loads(bytes(_read(end, header_bytes)))
    return _unpacked(header, _Cursor(_read(end, data_bytes)))


def _read(end: socket.socket, num_bytes: int) -> bytearray:
    data = bytearray(num_bytes)
    view = memoryview(data)
    while view:
        num_read = end.recv_into(view)
        if not num_read:
            raise EOFError
        view = view[num_read:]
    return data


class _Cursor:
    def __init__(self, data: bytearray) -> None:
        self._data, self._place = memoryview(data), 0

    def take(self, num_bytes: int) -> memoryview:
        begin, self._place = self._place, self._place + num_bytes
        return self._data[begin : self._place]


def _packed(value: Any, parts: list[memoryview]) -> Any:
    """Return a value as JSON; its arrays are appended to the parts."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        parts.append(memoryview(value))
        return {"bytes": len(value)}
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OSU":
            return {"texts": [_text(text) for text in value.reshape(-1)], "shape": value.shape}
        parts.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        return {"dtype": value.dtype.name, "shape": value.shape}
    if isinstance(value, dict):
        return {"pairs": [[_packed(part, parts) for part in pair] for pair in value.items()]}
    return [_packed(element, parts) for element in value]


def _unpacked(value: Any, cursor: _Cursor) -> Any:
    if isinstance(value, list):
        return [_unpacked(element, cursor) for element in value]
    if not isinstance(value, dict):
        return value
    if "bytes" in value:
        return bytes(cursor.take(value["bytes"]))
    if "pairs" in value:
        return dict([_unpacked(part, cursor) for part in pair] for pair in value["pairs"])
    shape = tuple(value["shape"])
    if "texts" in value:
        texts = np.empty(len(value["texts"]), object)
        texts[:] = value["texts"]
        return texts.reshape(shape)
    dtype = _dtype(value["dtype"])
    num_bytes = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(cursor.take(num_bytes), dtype).reshape(shape)


def _text(value: Any) -> str:
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)


def _dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        # What NumPy lacks comes with onnx.
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
