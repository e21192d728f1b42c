"""What can be wrong with any file, and with any JSON."""

from __future__ import annotations

import copy
import functools
import gzip
import io
import json
import os
import pathlib
import random
import socket
import tarfile
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

MakeFn = Callable[[pathlib.Path], object]
FAILURE, USAGE = (1,), (2,)
PERHAPS = (0, 1)
"""The damage may leave a right input: a few flipped bits do."""
EITHER = (1, 2)
"""Whether a text can be a file's name may be found when the options are read, or later."""
GIVEN = "given"
"""The name of what is damaged in place."""
_HUGE_BYTES = 1 << 42


class Damage(NamedTuple):
    """One thing that can be wrong with an input.

    Attributes:
      what: what is wrong; no two of an argument say the same.
      make_fn: makes the input at the path that it gets, where nothing is.
      name: what the argument says, if that is what is wrong; GIVEN for the path of the input.
      status: the right exit statuses.
    """

    what: str
    make_fn: MakeFn
    name: str = GIVEN
    status: tuple[int, ...] = FAILURE


def nothing(_: pathlib.Path) -> None:
    """Make no file."""


def writer(content: bytes) -> MakeFn:
    """Return what writes a file."""
    return lambda path: path.write_bytes(content)


def contents(wrong: Iterable[tuple[str, bytes]], status: tuple[int, ...] = FAILURE) -> list[Damage]:
    """Return damages by the contents of files."""
    return [Damage(what, writer(content), GIVEN, status) for what, content in wrong]


def flips(good: bytes, seed: int, number: int) -> list[Damage]:
    """Return files of which a few bits are flipped; they may be right all the same."""
    flipped = ((f"flipped bits {k}", flipped_bits(good, seed, k)) for k in range(number))
    return contents(flipped, PERHAPS)


def flipped_bits(good: bytes, seed: int, number: int) -> bytes:
    """Return the bytes with a few bits flipped, other ones for each number."""
    draw = random.Random(f"{seed} {number}")
    bad = bytearray(good)
    for _ in range(1 + number % 4):
        bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(8)
    return bytes(bad)


def places() -> list[Damage]:
    """Return what may stand where a file should be; none of it can be read as a file."""
    in_place: dict[str, MakeFn] = {
        "missing": nothing,
        "a directory": pathlib.Path.mkdir,
        "a pipe without a writer": os.mkfifo,
        "a socket": make_socket,
        "a link to nothing": lambda path: path.symlink_to("nowhere"),
        "a link to itself": lambda path: path.symlink_to(path.name),
        "a sparse file of 4 TiB": _make_sparse,
    }
    names = {
        "an endless device": "/dev/zero",
        "a full device": "/dev/full",
        "a terminal that is not there": "/dev/tty",
        "a process's memory": "/proc/self/mem",
        "a name in a file": "file/given",
        "a name of two lines": "two\nlines",
        "a name that is not UTF-8": os.fsdecode(b"name-\xff\xfe"),
    }
    unusable = {
        "a name that is too long": "n" * 300,
        "a name with a zero byte": "a\0b",
        "a path that is too long": "/".join(["d"] * 3000),
        "an empty name": "",
    }
    return [
        *(Damage(what, make_fn) for what, make_fn in in_place.items()),
        *(
            Damage(what, in_a_file if what == "a name in a file" else nothing, name)
            for what, name in names.items()
        ),
        *(Damage(what, nothing, name, EITHER) for what, name in unusable.items()),
    ]


def in_a_file(path: pathlib.Path) -> None:
    """Make a file where a path's directory should be."""
    path.parent.write_bytes(b"a file")


def make_socket(path: pathlib.Path) -> None:
    """Make a socket, whose path may be longer than the system takes."""
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(os.path.relpath(path) if len(str(path)) > 100 else str(path))


def _make_sparse(path: pathlib.Path) -> None:
    with path.open("wb") as file:
        file.truncate(_HUGE_BYTES)


def any_file(good: bytes, seed: int, without: Collection[str] = ()) -> list[Damage]:
    """Return what may be wrong with a file of any format.

    Args:
      good: the content of a right file.
      seed: of the damage.
      without: kinds that do no harm to files of this format.
    """
    draw = random.Random(seed)
    wrong = {
        "empty": b"",
        "one zero byte": b"\0",
        "zeros": bytes(4096),
        "random bytes": draw.randbytes(4096),
        "a line of text": b"once upon a time\n",
        "another format (zip)": _zip(),
        "another format (tar)": _tar(),
        "another format (gzip)": gzip.compress(good),
        "another format (ELF)": b"\x7fELF\x02\x01\x01" + bytes(57),
        "another format (PNG)": b"\x89PNG\r\n\x1a\n" + bytes(64),
        "a third of it": good[: len(good) // 3],
        "without its last bytes": good[:-2],
        "with bytes in front": b"\xde\xad\xbe\xef" + good,
    }
    return [
        damage for damage in (*places(), *contents(wrong.items())) if damage.what not in without
    ]


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "once upon a time")
    return buffer.getvalue()


def _tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("a.txt")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"once"))
    return buffer.getvalue()


def outputs(is_directory: bool = False) -> list[Damage]:
    """Return places to write to that cannot be written, or must not be replaced."""
    names: list[Damage] = [
        Damage("in a file", in_a_file, "file/out"),
        Damage("a name that is too long", nothing, "n" * 300, EITHER),
        Damage("in a place where nothing can be written", nothing, "/proc/out"),
        Damage("in a link to itself", lambda path: path.parent.symlink_to("loop"), "loop/out"),
        Damage("a name with a zero byte", nothing, "a\0b", EITHER),
        Damage("a pipe", os.mkfifo),
        Damage("a socket", make_socket),
    ]
    if is_directory:
        return [*names, Damage("a file", writer(b"precious"))]
    return [
        *names,
        Damage("a directory", pathlib.Path.mkdir),
        Damage("an empty name", nothing, "", EITHER),
        Damage("in a directory that is missing", nothing, "nowhere/out"),
    ]


WRONG_VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "a negative number": -1,
    "a fraction": 0.5,
    "a huge number": 10**30,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "an empty text": "",
    "a text of half a character": "\ud800",
    "a text of 100,000 letters": "a" * 100_000,
    "an empty list": [],
    "a list of null": [None],
    "a list of lists": [[[]]],
    "an object": {"a": 1},
}
NO_JSON: dict[str, bytes] = {
    "nested 100,000 deep": b"[" * 100_000 + b"]" * 100_000,
    "objects nested 100,000 deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a number of 100,000 digits": b"9" * 100_000,
    "two objects": b"{}{}",
    "a comma too many": b'{"a": 1,}',
    "single quotes": b"{'a': 1}",
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "a text": b'"text"',
    "an empty object": b"{}",
    "bytes that are not UTF-8": b'{"a": "\xff\xfe"}',
    "a field given twice": b'{"format": 1, "format": 2}',
}


def encoded(value: Any) -> bytes:
    """Return a JSON value as a file has it; NaN and infinity too."""
    return json.dumps(value).encode()


def wrong_json(
    good: Any, paths: Iterable[Sequence[Any]], fine: Collection[str] = ()
) -> Iterator[tuple[str, bytes]]:
    """Yield files of JSON that are none, or in which one field has another value or is missing.

    Args:
      good: the right value.
      paths: keys and indices that lead to the fields.
      fine: what happens to be right.
    """
    yield from NO_JSON.items()
    for *outer, last in paths:
        name = ".".join(map(str, [*outer, last]))
        for kind, value in (*WRONG_VALUES.items(), ("missing", None)):
            bad = copy.deepcopy(good)
            inside = functools.reduce(lambda part, key: part[key], outer, bad)
            if kind == "missing":
                del inside[last]
            else:
                inside[last] = value
            if (what := f"{name} is {kind}") not in fine:
                yield what, encoded(bad)
