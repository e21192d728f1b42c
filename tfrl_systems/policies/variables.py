"""All of a policy's variables in one buffer, and back.

Layout: 8 bytes that say what it is; the header's length and a version, int64 each, little-endian;
the header, JSON; then the variables' values one after another, little-endian and in C order, with
no gaps. The header gives each variable's name, shape and dtype.

Every variable travels, not only the trainable ones: normalisers are not trainable, and a worker
without them acts on other inputs than the learner. Variables are matched by position, because Keras
numbers its names anew in every process; the names must agree but for those numbers.

The header is the same from one version to the next: a reader compares it once (`Layout.read`).
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
    """What is needed of a tf.Variable."""

    name: str
    shape: Any
    dtype: Any

    def numpy(self) -> np.ndarray:
        """Its value."""

    def assign(self, value: np.ndarray) -> Any:
        """Changes its value."""


class VariablesError(ValueError):
    """A buffer that does not fit the variables, or is no buffer of variables."""


class Entry(NamedTuple):
    """What the header says of a variable."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Layout:
    """What a sequence of variables is, without their values. It can be pickled.

    Args:
      entries: one for each variable, in order.

    Raises:
      VariablesError: one of them holds something else than numbers or booleans.
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
        """The layout of these variables."""
        return cls(
            Entry(each.name, tuple(each.shape), _dtype_name(each.dtype)) for each in variables
        )

    def write(self, values: Sequence[bytes | memoryview], version: int) -> bytes:
        """A buffer of values, each in little-endian bytes."""
        prefix = _PREFIX.pack(_MAGIC, len(self.header), version)
        return b"".join([prefix, self.header, *values])

    def body(self, data: bytes) -> tuple[int, memoryview]:
        """The version of a buffer, and its values as they lie there.

        Raises:
          VariablesError: names the first variable that does not fit, or those that are missing.
        """
        header, version, values = _split(data)
        if header not in self._accepted:
            _compare(self.entries, _parse(header))
            self._accepted.add(header)
        if len(values) != self._size_bytes:
            raise _no_buffer(f"{len(values)} bytes of values, not {self._size_bytes}")
        return version, values

    def read(self, data: bytes) -> tuple[int, list[np.ndarray]]:
        """The version of a buffer, and its values as read-only arrays that share its memory.

        Raises:
          VariablesError: names the first variable that does not fit, or those that are missing.
        """
        version, values = self.body(data)
        return version, [
            np.ndarray(entry.shape, dtype, values, offset)
            for entry, dtype, offset in zip(self.entries, self._dtypes, self._offsets, strict=True)
        ]


class Packer:
    """Reads and writes the same variables again and again, in a tenth of a millisecond or two.

    Args:
      variables: TensorFlow variables, numbers or booleans.
    """

    def __init__(self, variables: Iterable[Variable]) -> None:
        self._variables = list(variables)
        self.layout = Layout.of(self._variables)
        dtypes = {entry.dtype for entry in self.layout.entries}
        self._dtype = next(iter(dtypes)) if len(dtypes) == 1 and dtypes != {"bool"} else ""
        self._join: Callable[[], Any] | None = None
        self._part: Callable[[Any], Any] | None = None

    def to_bytes(self, version: int = 0) -> bytes:
        """One buffer with all variables; `version` is a number of the caller's."""
        if not self._dtype:
            return to_bytes(self._variables, version)
        if self._join is None:
            self._join, self._part = _graph_functions(self._variables)
        joined = self._join().numpy()
        return self.layout.write([joined.astype(joined.dtype.newbyteorder("<")).data], version)

    def from_bytes(self, data: bytes) -> int:
        """Assigns all variables; on an error none of them. Returns the buffer's version."""
        if not self._dtype:
            return from_bytes(self._variables, data)
        version, values = self.layout.body(data)
        if self._part is None:
            self._join, self._part = _graph_functions(self._variables)
        dtype = np.dtype(self._dtype)
        self._part(np.frombuffer(values, dtype.newbyteorder("<")).astype(dtype))
        return version


def to_bytes(variables: Iterable[Variable], version: int = 0) -> bytes:
    """One buffer with all variables.

    Args:
      variables: those of `policy.variables()`, numbers or booleans.
      version: a number of the caller's, such as the iteration.
    """
    sources = list(variables)
    layout = Layout.of(sources)
    values = [np.asarray(each.numpy()) for each in sources]
    return layout.write(
        [value.astype(value.dtype.newbyteorder("<")).tobytes() for value in values], version
    )


def from_bytes(variables: Iterable[Variable], data: bytes) -> int:
    """Assigns all variables; on an error none of them.

    Args:
      variables: as many, in the order, and with the shapes and dtypes of those in the buffer.
      data: what `to_bytes` returned.

    Returns:
      The version that was given to `to_bytes`.

    Raises:
      VariablesError: names the first variable that does not fit, or those that are missing.
    """
    targets = list(variables)
    version, values = Layout.of(targets).read(data)
    for target, value in zip(targets, values, strict=True):
        target.assign(value.astype(value.dtype.newbyteorder("=")))
    return version


def sha256(data: bytes) -> str:
    """Hexadecimal digest of a buffer's variables; neither version nor Keras's numbers count."""
    header, _, values = _split(data)
    digest = hashlib.sha256(json.dumps([_plain(entry) for entry in _parse(header)]).encode())
    digest.update(values)
    return digest.hexdigest()


def _graph_functions(variables: list[Any]) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Two graph functions: all variables as one vector, and such a vector into all of them."""
    import tensorflow as tf

    sizes = [math.prod(each.shape) for each in variables]

    @tf.function
    def join() -> tf.Tensor:
        return tf.concat([tf.reshape(each, [-1]) for each in variables], axis=0)

    @tf.function
    def part(joined: tf.Tensor) -> None:
        for each, values in zip(variables, tf.split(joined, sizes), strict=True):
            each.assign(tf.reshape(values, each.shape))

    spec = tf.TensorSpec([sum(sizes)], variables[0].dtype)
    part_fn = part.get_concrete_function(spec)
    return join.get_concrete_function(), lambda joined: part_fn(tf.constant(joined))


def _split(data: bytes) -> tuple[bytes, int, memoryview]:
    """Header, version and values of a buffer."""
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
    """Names of the variables whose absence alone explains the difference, or none."""
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
    """The name of a TensorFlow dtype, or of NumPy's."""
    return np.dtype(getattr(dtype, "as_numpy_dtype", dtype)).name


def _no_buffer(found: str) -> VariablesError:
    return VariablesError(
        f"variables: expected a buffer made by to_bytes, found {found}; send it again"
    )
