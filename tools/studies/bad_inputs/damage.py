"""Makes wrong inputs of right ones: files, JSON, arrays, messages, and directories of these."""

from __future__ import annotations

import contextlib
import copy
import functools
import gzip
import io
import json
import os
import pathlib
import random
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from google.protobuf import json_format

Content = bytes | Mapping[str, Any] | Callable[[pathlib.Path], object]
"""A file's bytes, a directory's contents by relative path, or what makes the input at a path."""

FAILURE, USAGE = (1,), (2,)
PERHAPS = (0, 1)
"""The damage may leave a right input: a few flipped bits do, and another value of a field."""
EITHER = (1, 2)
"""Whether a text can be a file's name may be found when the options are read, or later."""
GIVEN = "given"
"""The name of what is damaged in place."""


class Damage(NamedTuple):
    """One thing that can be wrong with an input.

    Attributes:
      what: what is wrong; no two of an argument say the same.
      content: what stands at the path of the input; None for nothing.
      name: what the argument says, if that is what is wrong; GIVEN for the path of the input.
      status: the right exit statuses.
    """

    what: str
    content: Content | None
    name: str = GIVEN
    status: tuple[int, ...] = FAILURE


def write(content: Content, path: pathlib.Path) -> None:
    """Make an input at a path, where nothing is."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, Mapping):
        path.mkdir()
        for name, part in content.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            write(part, path / name)
    else:
        content(path)


def damages(
    wrong: Mapping[str, Content] | Iterable[tuple[str, Content]], status: tuple[int, ...] = FAILURE
) -> list[Damage]:
    """Return damages in place: what is wrong -> what stands there."""
    return [Damage(what, content, GIVEN, status) for what, content in dict(wrong).items()]


def _bind(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as endpoint:  # whose path may not be long
        endpoint.bind(os.path.relpath(path) if len(str(path)) > 100 else str(path))


def _make_sparse(path: pathlib.Path) -> None:
    path.touch()
    os.truncate(path, 1 << 42)


_PLACES: dict[str, Content | None] = {
    "missing": None, "a directory": {}, "a pipe without a writer": os.mkfifo, "a socket": _bind,
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a sparse file of 4 TiB": _make_sparse,
}  # fmt: skip
_NAMES = ("/dev/zero", "/dev/full", "/dev/tty", "/proc/self/mem", "file/given", "two\nlines",
          os.fsdecode(b"name-\xff\xfe"))  # fmt: skip
_NO_NAMES = ("n" * 300, "a\0b", "/".join(["d"] * 3000), "")
_BYTES = {
    "empty": b"", "one zero byte": b"\0", "zeros": bytes(4096), "a line of text": b"once upon\n",
    "ELF": b"\x7fELF\x02\x01\x01" + bytes(57), "PNG": b"\x89PNG\r\n\x1a\n" + bytes(64),
    "random bytes": random.Random(0).randbytes(4096),
}  # fmt: skip


def in_place(good: bytes) -> list[Damage]:
    """Return what may stand in place of a file of any format, some of it made of a right one."""
    made_of_it = {
        **{"gzip": gzip.compress(good), "zip": arrays_file({"a": np.zeros(2)})},
        **{"a third of it": good[: len(good) // 3], "without its last bytes": good[:-2]},
        "with bytes in front": b"\xde\xad\xbe\xef" + good,
    }
    return [
        *(Damage(what, content) for what, content in _PLACES.items()),
        *damages({**_BYTES, **made_of_it}),
    ]


def files(good: bytes) -> list[Damage]:
    """Return what may stand in place of a file, and names that lead to none."""
    return [
        *in_place(good),
        *(Damage(f"{name!r}", None, name) for name in _NAMES),
        *(Damage(f"{name[:9]!r}, {len(name)} long", None, name, EITHER) for name in _NO_NAMES),
    ]


def in_directory(good: Mapping[str, Any], name: str) -> list[Damage]:
    """Return copies of a directory in which one file is damaged."""
    rest = {key: content for key, content in good.items() if key != name}
    return [
        damage._replace(
            what=f"{name}: {damage.what}",
            content=rest if damage.content is None else {**rest, name: damage.content},
        )
        for damage in in_place(good[name])
    ]


def flips(good: bytes, seed: int, number: int, status: tuple[int, ...] = PERHAPS) -> list[Damage]:
    """Return files of which a few bits are flipped; they may be right all the same."""
    wrong = {}
    for k in range(number):
        draw, bad = random.Random(f"{seed} {k}"), bytearray(good)
        for _ in range(1 + k % 4):
            bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(8)
        wrong[f"flipped bits {k}"] = bytes(bad)
    return damages(wrong, status)


def outputs(is_directory: bool) -> list[Damage]:
    """Return places to write to that cannot be written, or must not be replaced."""
    names = ("file/out", "/proc/out", "loop/out", *(() if is_directory else ("nowhere/out",)))
    no_names = ("n" * 300, "a\0b", *(() if is_directory else ("",)))
    occupied: dict[str, Content] = {"a pipe": os.mkfifo, "a socket": _bind}
    if is_directory:
        occupied["a file"] = b"precious"
    else:
        occupied["a directory"] = {}
    return [
        *(Damage(name, None, name) for name in names),
        *(Damage(f"{name[:9]!r}", None, name, EITHER) for name in no_names),
        *damages(occupied),
    ]


_WRONG_VALUES: dict[str, Any] = {
    "null": None, "true": True, "a negative number": -1, "a fraction": 0.5,
    "a large number": (1 << 31) - 1, "a huge number": 10**30, "NaN": float("nan"),
    "infinity": float("inf"), "an empty text": "", "a text of half a character": "\ud800",
    "a text of 100,000 letters": "a" * 100_000, "a text of 50,000 brackets": "(" * 50_000,
    "a text with a zero byte": "a\0b", "a path that leads out": "p/../../a", "two lines": "a\nb",
    "an empty list": [], "a list of null": [None], "a list of lists": [[[]]],
    "an object": {"a": 1},
}  # fmt: skip
_NO_JSON: dict[str, bytes] = {
    "nested 100,000 deep": b"[" * 100_000 + b"]" * 100_000,
    "objects nested 100,000 deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a number of 100,000 digits": b"9" * 100_000,
    "a field given twice": b'{"format": 1, "format": 2}',
    **{repr(text): text for text in (b"{}{}", b'{"a": 1,}', b"{'a': 1}", b"[]", b"7", b"null",
                                     b'"text"', b"{}", b'{"a": "\xff\xfe"}')},
}  # fmt: skip


def encoded(value: Any) -> bytes:
    """Return a JSON value as a file has it; NaN and infinity too."""
    return json.dumps(value).encode()


def _paths(value: Any, depth: int) -> Iterator[tuple[Any, ...]]:
    """Yield the keys and indices that lead to each part of a JSON value."""
    if not isinstance(value, dict | list) or not depth:
        return
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield (key,)
        yield from ((key, *inner) for inner in _paths(part, depth - 1))


def changed(good: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield copies of a JSON value of which one field has another value or is missing.

    Args:
      good: the right value.
      depth: how deep the fields lie that are changed.
    """
    for *outer, last in _paths(good, depth):
        name = ".".join(map(str, [*outer, last]))
        for kind, value in (*_WRONG_VALUES.items(), ("missing", None)):
            bad = copy.deepcopy(good)
            inside = functools.reduce(lambda part, key: part[key], outer, bad)
            if kind == "missing":
                del inside[last]
            else:
                inside[last] = value
            yield f"{name} is {kind}", bad


def wrong_json(good: Any, depth: int) -> list[Damage]:
    """Return files of JSON that are none, and those of `changed`."""
    fields = {what: encoded(bad) for what, bad in changed(good, depth)}
    return [*damages(_NO_JSON), *damages(fields, PERHAPS)]


def wrong_messages(right: Any) -> Iterator[tuple[str, bytes]]:
    """Yield protobuf messages in which one field has another value, or is missing."""
    for what, bad in changed(json_format.MessageToDict(right), depth=9):
        # A field of a message takes no values but those of its type, and no half character.
        with contextlib.suppress(json_format.ParseError, SystemError):
            yield what, json_format.ParseDict(bad, type(right)()).SerializeToString()


def arrays_file(arrays: Mapping[str, Any]) -> bytes:
    """Return the bytes of an .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def wrong_arrays(arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, bytes]]:
    """Yield .npz files of which an array is missing, or of another shape or type."""
    for name, array in arrays.items():
        wrong = {
            "of another shape": np.zeros((*array.shape, 2), array.dtype),
            "longer": np.zeros([size + 1 for size in array.shape] or [2], array.dtype),
            "of no dimension": array.dtype.type(0),
            "of text": np.full(array.shape, "a"),
            "of complex numbers": array.astype(np.complex64),
            "of objects": np.full(array.shape, None, object),
            "of dates": np.zeros(array.shape, "datetime64[s]"),
            "of records": np.zeros(array.shape, [("a", "f4")]),
        }
        rest = {key: part for key, part in arrays.items() if key != name}
        yield f"without {name}", arrays_file(rest)
        for what, bad in wrong.items():
            yield f"{name} {what}", arrays_file({**rest, name: bad})
