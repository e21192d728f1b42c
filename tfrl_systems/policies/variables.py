"""All of a policy's variables in one buffer, and back.

Layout: 8 bytes, the header's length, little-endian; the header, JSON; then the variables' values
one after another, little-endian and in C order, with no gaps. The header gives format, version and
each variable's name, shape and dtype.

Every variable travels, not only the trainable ones: normalisers are not trainable, and a worker
without them acts on other inputs than the learner. Variables are matched by position, because Keras
numbers its names anew in every process; the names must agree but for those numbers.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

_FORMAT = "tfrl-variables"
_LENGTH = struct.Struct("<Q")
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


def to_bytes(variables: Iterable[Variable], version: int = 0) -> bytes:
    """One buffer with all variables.

    Args:
      variables: those of `policy.variables()`, numbers or booleans.
      version: a number of the caller's, such as the iteration.
    """
    entries, chunks = [], []
    for variable in variables:
        value = np.asarray(variable.numpy())
        if value.dtype.kind not in "biuf":
            raise VariablesError(
                f"variable {variable.name}: expected numbers, found {value.dtype}; "
                "leave it out of the policy"
            )
        entries.append(
            {"name": variable.name, "shape": list(value.shape), "dtype": value.dtype.name}
        )
        chunks.append(value.astype(value.dtype.newbyteorder("<")).tobytes())
    header = json.dumps({"format": _FORMAT, "version": version, "variables": entries}).encode()
    return b"".join([_LENGTH.pack(len(header)), header, *chunks])


def from_bytes(variables: Iterable[Variable], data: bytes) -> int:
    """Assigns all variables; on an error none of them.

    Args:
      variables: as many, in the order, and with the shapes and dtypes of those in the buffer.
      data: what `to_bytes` returned.

    Returns:
      The version that was given to `to_bytes`.

    Raises:
      VariablesError: names the first variable that does not fit.
    """
    header, values = _unpack(data)
    targets = list(variables)
    entries = header["variables"]
    for target, entry in zip(targets, entries, strict=False):
        _compare(target, entry)
    if len(targets) != len(entries):
        extra = targets[len(entries) :] or entries[len(targets) :]
        name = extra[0]["name"] if isinstance(extra[0], dict) else extra[0].name
        raise VariablesError(
            f"variables: expected {len(targets)}, found {len(entries)} in the buffer, the first "
            f"that only one side has is {name}; make both policies with the same settings"
        )
    for target, value in zip(targets, values, strict=True):
        target.assign(value)
    return header["version"]


def _unpack(data: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
    try:
        (length,) = _LENGTH.unpack_from(data)
        header = json.loads(bytes(data[_LENGTH.size : _LENGTH.size + length]))
        if header["format"] != _FORMAT:
            raise ValueError(f"format {header['format']}")
        values, position = [], _LENGTH.size + length
        for entry in header["variables"]:
            dtype = np.dtype(entry["dtype"])
            count = math.prod(entry["shape"])
            flat = np.frombuffer(data, dtype.newbyteorder("<"), count, position)
            values.append(flat.reshape(entry["shape"]).astype(dtype))
            position += flat.nbytes
        if position != len(data):
            raise ValueError(f"{len(data)} bytes where the header describes {position}")
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise VariablesError(
            f"variables: expected a buffer made by to_bytes, found {error}; send it again"
        ) from error
    return header, values


def _compare(target: Variable, entry: dict[str, Any]) -> None:
    name = _NUMBERING.sub("", target.name)
    wanted = (name, list(target.shape), np.dtype(target.dtype.as_numpy_dtype).name)
    found = (_NUMBERING.sub("", entry["name"]), entry["shape"], entry["dtype"])
    for what, mine, theirs in zip(("name", "shape", "dtype"), wanted, found, strict=True):
        if mine != theirs:
            raise VariablesError(
                f"variable {target.name}: expected {what} {mine}, found {theirs} in the buffer; "
                "make both policies with the same settings"
            )
