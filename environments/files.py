"""Reads files that others may have written: regular files of a bounded size, JSON and arrays.

What is wrong with a file becomes an OSError (it cannot be read) or a ValueError (it is not of the
format), never a hang, a full memory or any other error. Callers say in a UserError what to do.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import pathlib
import stat
import struct
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from environments.errors import UserError

if TYPE_CHECKING:
    import numpy as np

MAX_BYTES = 1 << 31
"""Size of the largest file, or content of an archive, that is read as a whole."""

_MAX_NAME_BYTES = 255
_MAX_PATH_BYTES = 4095


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a regular file as a whole.

    Raises:
      OSError: there is none, it cannot be read, or it is larger than MAX_BYTES.
    """
    name = os.fspath(path)
    # A pipe without a writer would block.
    with os.fdopen(os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", name)
        if about.st_size > MAX_BYTES:
            size = f"{about.st_size:,} bytes, more than {MAX_BYTES:,}"
            raise OSError(errno.EFBIG, size, name)
        return file.read()


def sha256(path: str | os.PathLike[str]) -> str:
    """Return the hexadecimal SHA-256 of a regular file's bytes.

    Raises:
      OSError: see `read_bytes`.
    """
    return hashlib.sha256(read_bytes(path)).hexdigest()


def read_json(path: str | os.PathLike[str], errors: str = "surrogatepass") -> Any:
    """Read a file of JSON; NaN and infinity are none. `errors` is that of `bytes.decode`.

    Raises:
      OSError: see `read_bytes`.
      ValueError: the file is not JSON.
    """
    try:
        data = read_bytes(path)
        text = data.decode(json.detect_encoding(data), errors)
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("values nested too deeply") from None


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read all arrays of an .npz file, by name.

    Raises:
      OSError: see `read_bytes`.
      ValueError: the file is not of that format, is damaged, holds objects, or declares arrays
        that are not there.
    """
    data = io.BytesIO(read_bytes(path))
    try:
        with zipfile.ZipFile(data) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > MAX_BYTES:
                raise ValueError(f"arrays of more than {MAX_BYTES:,} bytes")
            return {
                entry.filename.removesuffix(".npy"): _array(archive, entry) for entry in entries
            }
    except (
        zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, TypeError, RuntimeError,
        NotImplementedError, OverflowError, SyntaxError, tokenize.TokenError,
    ) as error:  # fmt: skip
        raise ValueError(f"a damaged archive: {error}") from None


def check_place(path: pathlib.Path) -> None:
    """Check that a file can be written: before the work of which it is the result.

    Raises:
      UserError: its directory is missing, or something is there that is no file.
    """
    try:
        if not path.parent.is_dir():
            raise UserError(f"{path}: expected a directory {path.parent}, found none; make it")
        if path.exists() and not path.is_file():
            raise UserError(f"{path}: expected a file to write, found something else; name another")
        # Permissions do not tell: a file system may be read-only, or none that keeps files.
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}; name another") from None


def replace(path: pathlib.Path, content: bytes, mode: int | None = None) -> None:
    """Write a file, with a mode of its own if one is given: at once, or not at all.

    Raises:
      UserError: the file cannot be written.
    """
    check_place(path)
    partial = path.with_name(f".{os.getpid()}.partial")
    try:
        try:
            partial.write_bytes(content)
            if mode is not None:
                partial.chmod(mode)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}; name another") from None


def misfit(value: Any, fields: Mapping[str, type]) -> str:
    """Return what is wrong with the fields of a JSON object; "" if nothing is.

    Args:
      value: the object; a missing field is right.
      fields: their types. An int is no bool and not negative; text has only printable characters.
    """
    for name, kind in fields.items():
        field = value.get(name, kind())
        fits = type(field) is kind
        if fits and kind is str:
            fits = field.isprintable()
        if fits and kind is int:
            fits = field >= 0
        if not fits:
            return f"expected {name} as {_KINDS[kind]}, found {json.dumps(field)[:80]}"
    return ""


_KINDS = {
    str: "text", int: "a whole number from 0 on", bool: "true or false", dict: "an object",
    list: "a list",
}  # fmt: skip


def exists(path: str | os.PathLike[str]) -> bool:
    """Return whether there is such a file or directory; no for a name that no file can have."""
    return os.path.exists(path)  # noqa: PTH110  pathlib raises for such names


def is_directory(path: str | os.PathLike[str]) -> bool:
    """Return whether there is such a directory; no for a name that no directory can have."""
    return os.path.isdir(path)  # noqa: PTH112


def is_file(path: str | os.PathLike[str]) -> bool:
    """Return whether there is such a regular file; no for a name that no file can have."""
    return os.path.isfile(path)  # noqa: PTH113


def checked_path(text: str) -> pathlib.Path:
    """Return a path that a user wrote.

    Raises:
      ValueError: the text cannot be the name of a file.
    """
    encoded = os.fsencode(text)
    names = encoded.split(b"/")
    if not text or b"\0" in encoded or len(encoded) > _MAX_PATH_BYTES:
        raise ValueError(text)
    if max(map(len, names)) > _MAX_NAME_BYTES:
        raise ValueError(text)
    return pathlib.Path(text)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"expected numbers, found {text}")


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """Read an array whose header fits the size of its entry, before memory is taken for it."""
    import numpy as np  # The command line reads paths here, and is to start fast.

    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        read_fn = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if read_fn is None:
            raise ValueError(f"{entry.filename}: an array of an unknown version {version}")
        shape, _, dtype = read_fn(file)
        if dtype.hasobject:
            raise ValueError(f"{entry.filename}: objects, which are not read")
        needed = file.tell() + math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or needed != entry.file_size:
            raise ValueError(
                f"{entry.filename}: {entry.file_size:,} bytes for the shape {list(shape)}"
            )
    with archive.open(entry) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
