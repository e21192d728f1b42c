"""Packs all of a policy's variables into one buffer, and unpacks them.

    8 bytes that identify the format
    the header's length and a version, int64 each, little-endian
    the header, JSON: each variable's name, shape and dtype
    the variables' values, little-endian, in C order and without gaps

Every variable is packed, not only the trainable ones: a worker without the normalisers would act on
other inputs than the learner. Variables are matched by position. Their names must agree, except for
the numbers that Keras assigns anew in every process.

The header does not change from version to version, so a reader compares it once (`Layout.read`).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

_MAGIC = b"tfrlvar1"
_PREFIX = struct.Struct("<8sqq")
_NUMBERING = re.compile(r"_\d+(?=/|:|$)")


class VariablesError(ValueError):
    """Raised for a buffer that does not fit the variables, or is not a buffer of variables."""


class Entry(NamedTuple):
    """The header's entry for one variable."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Layout:
    """The names, shapes and dtypes of a sequence of variables, in order. It can be pickled.

    Raises:
      VariablesError: a variable holds neither numbers nor booleans.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = tuple(entries)
        for entry in self.entries:
            if np.dtype(entry.dtype).kind not in "biuf":
                raise VariablesError(
                    f"variable {entry.name}: expected numbers, found {entry.dtype}; "
                    "leave it out of the policy"
                )
        self.header = json.dumps(self.entries).encode()
        self._accepted = {self.header}
        self._dtypes = [np.dtype(entry.dtype).newbyteorder("<") for entry in self.entries]
        counts = [math.prod(entry.shape) for entry in self.entries]
        sizes = [dtype.itemsize * n for dtype, n in zip(self._dtypes, counts, strict=True)]
        self._offsets = [sum(sizes[:number]) for number in range(len(sizes))]
        self._size_bytes = sum(sizes)

    @classmethod
    def of(cls, variables: Iterable[tf.Variable]) -> Layout:
        """Return the layout of these variables."""
        return cls(
            Entry(
                variable.name, tuple(variable.shape), np.dtype(variable.dtype.as_numpy_dtype).name
            )
            for variable in variables
        )

    def write(self, values: Sequence[bytes], version: int) -> bytes:
        """Pack values, each in little-endian bytes, into a buffer with this version."""
        prefix = _PREFIX.pack(_MAGIC, len(self.header), version)
        return b"".join([prefix, self.header, *values])

    def read(self, data: bytes) -> tuple[int, list[np.ndarray]]:
        """Return a buffer's version, and its values as read-only arrays that share its memory.

        Raises:
          VariablesError: names the first variable that does not fit, or those that are missing.
        """
        header, version, values = _split(data)
        if header not in self._accepted:
            _compare(self.entries, _parse(header))
            self._accepted.add(header)
        if len(values) != self._size_bytes:
            raise _no_buffer(f"{len(values)} bytes of values, not {self._size_bytes}")
        return version, [
            np.ndarray(entry.shape, dtype, values, offset)
            for entry, dtype, offset in zip(self.entries, self._dtypes, self._offsets, strict=True)
        ]


class Packer:
    """Packs the same variables, of numbers or booleans, many times, fast."""

    def __init__(self, variables: Iterable[tf.Variable]) -> None:
        # Workers read this module without TensorFlow.
        from tfrl_systems.networks.array_function import ArrayFunction

        sources = list(variables)
        self.layout = Layout.of(sources)
        self._read_fn = ArrayFunction(lambda: [variable.read_value() for variable in sources])

    def to_bytes(self, version: int = 0) -> bytes:
        """Pack all variables into a buffer; `version` is any number that the caller chooses."""
        return self.layout.write(_little_endian(self._read_fn()), version)


def to_bytes(variables: Iterable[tf.Variable], version: int = 0) -> bytes:
    """Pack variables into a buffer once; see `Packer.to_bytes`."""
    sources = list(variables)
    values = _little_endian(np.asarray(variable.numpy()) for variable in sources)
    return Layout.of(sources).write(values, version)


def sha256(data: bytes) -> str:
    """Return a buffer's hexadecimal digest; the version and Keras's numbers do not count."""
    header, _, values = _split(data)
    digest = hashlib.sha256(json.dumps([_plain(entry) for entry in _parse(header)]).encode())
    digest.update(values)
    return digest.hexdigest()


def _little_endian(values: Iterable[np.ndarray]) -> list[bytes]:
    return [value.astype(value.dtype.newbyteorder("<")).tobytes() for value in values]


def _split(data: bytes) -> tuple[bytes, int, memoryview]:
    """Split a buffer into header, version and values."""
    view = memoryview(data)
    if len(view) < _PREFIX.size:
        raise _no_buffer(f"{len(view)} bytes")
    magic, length, version = _PREFIX.unpack_from(view)
    if magic != _MAGIC or not 0 <= length <= len(view) - _PREFIX.size:
        raise _no_buffer("something else")
    end = _PREFIX.size + length
    return bytes(view[_PREFIX.size : end]), version, view[end:]


def _parse(header: bytes) -> list[Entry]:
    try:
        entries = [Entry(name, tuple(shape), dtype) for name, shape, dtype in json.loads(header)]
        if all(isinstance(entry.name, str) for entry in entries):
            return entries
        raise ValueError("variables without names")
    except (ValueError, TypeError) as error:
        raise _no_buffer(str(error)) from error


def _compare(expected: Sequence[Entry], received: Sequence[Entry]) -> None:
    """Raise VariablesError unless the entries agree but for Keras's numbers."""
    missing = _missing(expected, received)
    if missing:
        raise VariablesError(
            f"variables: expected {len(expected)}, found {len(received)} in the buffer, without "
            f"{', '.join(missing)}; send all of policy.variables(), not only the trainable ones"
        )
    for mine, theirs in zip(expected, received, strict=False):
        for field, my, their in zip(Entry._fields, _plain(mine), _plain(theirs), strict=True):
            if my != their:
                raise VariablesError(
                    f"variable {mine.name}: expected {field} {my}, found {their} in the buffer; "
                    "make both policies with the same settings"
                )
    if len(expected) != len(received):
        longer = max(expected, received, key=len)
        first = longer[min(len(expected), len(received))]
        raise VariablesError(
            f"variables: expected {len(expected)}, found {len(received)} in the buffer, the first "
            f"that only one side has is {first.name}; make both policies with the same settings"
        )


def _missing(expected: Sequence[Entry], received: Sequence[Entry]) -> list[str]:
    """Return the names of variables if their absence alone explains the difference, else none."""
    rest = [_plain(entry) for entry in received]
    missing = []
    for entry in expected:
        if rest and rest[0] == _plain(entry):
            del rest[0]
        else:
            missing.append(entry.name)
    return [] if rest else missing


def _plain(entry: Entry) -> Entry:
    return entry._replace(name=_NUMBERING.sub("", entry.name))


def _no_buffer(content: str) -> VariablesError:
    return VariablesError(
        f"variables: expected a buffer made by to_bytes, found {content}; send it again"
    )
