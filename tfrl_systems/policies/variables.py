"""Packs all of a policy's variables into one buffer, and unpacks them.

A buffer consists of 8 bytes that identify the format; the header's length and a version, int64
each, little-endian; the header, JSON; and the variables' values, little-endian, in C order and
without gaps. The header gives each variable's name, shape and dtype.

Every variable is packed, not only the trainable ones. Normalisers are not trainable, but a worker
without them would act on other inputs than the learner. Variables are matched by position. Their
names must agree, except for the numbers that Keras assigns anew in every process.

The header does not change from version to version, so a reader compares it once (`Layout.read`).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

_MAGIC = b"tfrlvar1"
_PREFIX = struct.Struct("<8sqq")
_NUMBERING = re.compile(r"_\d+(?=/|:|$)")


class Variable(Protocol):
    """The part of tf.Variable that this module uses."""

    name: str
    shape: Any
    dtype: Any

    def numpy(self) -> np.ndarray:
        """Return the value."""

    def assign(self, value: np.ndarray) -> Any:
        """Set the value."""


class VariablesError(ValueError):
    """Raised for a buffer that does not fit the variables, or is not a buffer of variables."""


class Entry(NamedTuple):
    """The header's entry for one variable."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Layout:
    """The names, shapes and dtypes of a sequence of variables. It can be pickled.

    Args:
      entries: one for each variable, in order.

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
    def of(cls, variables: Iterable[Variable]) -> Layout:
        """Return the layout of these variables."""
        return cls(
            Entry(each.name, tuple(each.shape), _dtype_name(each.dtype)) for each in variables
        )

    def write(self, values: Sequence[bytes], version: int) -> bytes:
        """Pack values, each in little-endian bytes, into a buffer with this version."""
        prefix = _PREFIX.pack(_MAGIC, len(self.header), version)
        return b"".join([prefix, self.header, *values])

    def read(self, data: bytes) -> tuple[int, list[np.ndarray]]:
        """Return a buffer's version, and its values as read-only arrays that share its memory.

        Args:
          data: the buffer.

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
    """Packs the same variables many times, fast.

    Args:
      variables: TensorFlow variables of numbers or booleans.
    """

    def __init__(self, variables: Iterable[Variable]) -> None:
        self._variables = list(variables)
        self.layout = Layout.of(self._variables)
        self._read_fn: Callable[[], list[np.ndarray]] | None = None

    def to_bytes(self, version: int = 0) -> bytes:
        """Pack all variables into a buffer; `version` is any number that the caller chooses."""
        if self._read_fn is None:
            self._read_fn = _reader(self._variables)
        return self.layout.write(_little_endian(self._read_fn()), version)


def to_bytes(variables: Iterable[Variable], version: int = 0) -> bytes:
    """Pack all variables into a buffer.

    Args:
      variables: `policy.variables()`, numbers or booleans.
      version: any number that the caller chooses, such as the iteration.

    Returns:
      The buffer.
    """
    sources = list(variables)
    layout = Layout.of(sources)
    return layout.write(_little_endian(np.asarray(each.numpy()) for each in sources), version)


def from_bytes(variables: Iterable[Variable], data: bytes) -> int:
    """Assign all variables from a buffer, or none if it does not fit.

    Args:
      variables: the variables, in the buffer's order and with its shapes and dtypes.
      data: what `to_bytes` returned.

    Returns:
      The version that was passed to `to_bytes`.

    Raises:
      VariablesError: names the first variable that does not fit, or those that are missing.
    """
    targets = list(variables)
    version, values = Layout.of(targets).read(data)
    for target, value in zip(targets, values, strict=True):
        target.assign(value.astype(value.dtype.newbyteorder("=")))
    return version


def sha256(data: bytes) -> str:
    """Return a buffer's hexadecimal digest; the version and Keras's numbers do not count."""
    header, _, values = _split(data)
    digest = hashlib.sha256(json.dumps([_plain(entry) for entry in _parse(header)]).encode())
    digest.update(values)
    return digest.hexdigest()


def _reader(variables: list[Any]) -> Callable[[], list[np.ndarray]]:
    """Return a function that reads all variables at once."""
    from tfrl_systems.networks.array_function import ArrayFunction

    return ArrayFunction(lambda: [each.read_value() for each in variables])


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


def _compare(wanted: Sequence[Entry], found: Sequence[Entry]) -> None:
    missing = _missing(wanted, found)
    if missing:
        raise VariablesError(
            f"variables: expected {len(wanted)}, found {len(found)} in the buffer, without "
            f"{', '.join(missing)}; send all of policy.variables(), not only the trainable ones"
        )
    for mine, theirs in zip(wanted, found, strict=False):
        for what, my, their in zip(Entry._fields, _plain(mine), _plain(theirs), strict=True):
            if my != their:
                raise VariablesError(
                    f"variable {mine.name}: expected {what} {my}, found {their} in the buffer; "
                    "make both policies with the same settings"
                )
    if len(wanted) != len(found):
        longer = max(wanted, found, key=len)
        raise VariablesError(
            f"variables: expected {len(wanted)}, found {len(found)} in the buffer, the first that "
            f"only one side has is {longer[min(len(wanted), len(found))].name}; make both policies "
            "with the same settings"
        )


def _missing(wanted: Sequence[Entry], found: Sequence[Entry]) -> list[str]:
    """Return the names of variables if their absence alone explains the difference, else none."""
    rest = [_plain(entry) for entry in found]
    missing = []
    for entry in wanted:
        if rest and rest[0] == _plain(entry):
            del rest[0]
        else:
            missing.append(entry.name)
    return [] if rest else missing


def _plain(entry: Entry) -> Entry:
    return entry._replace(name=_NUMBERING.sub("", entry.name))


def _dtype_name(dtype: Any) -> str:
    """Return the name of a TensorFlow or NumPy dtype."""
    return np.dtype(getattr(dtype, "as_numpy_dtype", dtype)).name


def _no_buffer(found: str) -> VariablesError:
    return VariablesError(
        f"variables: expected a buffer made by to_bytes, found {found}; send it again"
    )
