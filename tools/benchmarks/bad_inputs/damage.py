"""Ways to damage a file: what is there instead of what should be."""

from __future__ import annotations

import gzip
import io
import os
import pathlib
import random
import socket
import tarfile
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence

from tools.benchmarks.bad_inputs.case import EITHER, FAILURE, Case, MakeFn, all_of, at, nothing

_HUGE_BYTES = 1 << 42
_LONG = "n" * 300
_GIVEN = "given"
_NAMES = frozenset(
    {
        "a name that is too long",
        "a path that is too long",
        "an empty name",
        "a name with a zero byte",
    }
)


def files(
    argument: str,
    words_fn: Callable[[str], Sequence[str]],
    good: bytes,
    seed: int,
    *,
    others_fn: MakeFn = nothing,
    without: Collection[str] = (),
    leaves: tuple[str, ...] = (),
) -> list[Case]:
    """Make cases in which an argument should be a file and is not, or is a damaged one.

    Args:
      argument: name of the argument.
      words_fn: (path of the file) -> the command line.
      good: the content of a right file.
      seed: of the damage.
      others_fn: makes the case's other files.
      without: kinds that do no harm to files of this format.
      leaves: see `Case`.
    """
    cases = []
    for what, (name, make_fn) in (_places() | _contents(good, seed)).items():
        if what not in without:
            cases.append(
                Case(
                    f"{argument}: {what}",
                    tuple(words_fn(name)),
                    all_of(others_fn, at(name, make_fn)),
                    EITHER if what in _NAMES else FAILURE,
                    leaves,
                )
            )
    return cases


def in_place(argument: str, good: bytes, seed: int) -> Iterator[tuple[str, MakeFn]]:
    """Yield what may stand where a right file should be.

    Args:
      argument: what the file is called in the cases.
      good: its right content.
      seed: of the damage.

    Yields:
      What is wrong, and what makes it at the path that it gets, where nothing is.
    """
    for what, (name, make_fn) in (_places() | _contents(good, seed)).items():
        if name == _GIVEN:
            yield f"{argument}: {what}", make_fn


def _places() -> dict[str, tuple[str, MakeFn]]:
    """Return what stands where a file should be; none of it can be read as a file."""
    return {
        "missing": (_GIVEN, nothing),
        "a directory": (_GIVEN, pathlib.Path.mkdir),
        "a pipe without a writer": (_GIVEN, os.mkfifo),
        "a socket": (_GIVEN, _make_socket),
        "an endless device": ("/dev/zero", nothing),
        "a full device": ("/dev/full", nothing),
        "a terminal that is not there": ("/dev/tty", nothing),
        "a process's memory": ("/proc/self/mem", nothing),
        "a link to nothing": (_GIVEN, lambda path: path.symlink_to("nowhere")),
        "a link to itself": (_GIVEN, lambda path: path.symlink_to(path.name)),
        "a name in a file": ("file/given", lambda path: path.parent.write_bytes(b"a file")),
        "a name of two lines": ("two\nlines", nothing),
        "a name that is not UTF-8": (os.fsdecode(b"name-\xff\xfe"), nothing),
        "a name that is too long": (_LONG, nothing),
        "a name with a zero byte": ("a\0b", nothing),
        "a path that is too long": ("/".join(["d"] * 3000), nothing),
        "an empty name": ("", nothing),
        "a sparse file of 4 TiB": (_GIVEN, _make_sparse),
    }


def _contents(good: bytes, seed: int) -> dict[str, tuple[str, MakeFn]]:
    """Return contents that no file of the format has."""
    draw = random.Random(seed)
    found = {
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
    return {what: (_GIVEN, _writer(content)) for what, content in found.items()}


def flipped(good: bytes, seed: int, number: int) -> bytes:
    """Return the bytes with a few bits flipped, other ones for each number."""
    draw = random.Random(f"{seed} {number}")
    bad = bytearray(good)
    for _ in range(1 + number % 4):
        bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(8)
    return bytes(bad)


def _writer(content: bytes) -> MakeFn:
    return lambda path: path.write_bytes(content)


def _make_socket(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(path) if len(str(path)) > 100 else str(path))


def _make_sparse(path: pathlib.Path) -> None:
    with path.open("wb") as file:
        file.truncate(_HUGE_BYTES)


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


def outputs(
    argument: str,
    words_fn: Callable[[str], Sequence[str]],
    *,
    others_fn: MakeFn = nothing,
    is_directory: bool = False,
) -> list[Case]:
    """Make cases in which the place to write to cannot be written, or must not be replaced."""
    places: dict[str, tuple[str, MakeFn]] = {
        "in a directory that is missing": ("nowhere/out", nothing),
        "in a file": ("file/out", lambda path: path.parent.write_bytes(b"a file")),
        "a name that is too long": (_LONG, nothing),
        "in a place where nothing can be written": ("/proc/out", nothing),
        "in a link to itself": ("loop/out", lambda path: path.parent.symlink_to("loop")),
        "a name with a zero byte": ("a\0b", nothing),
        "a pipe": ("out", os.mkfifo),
        "a socket": ("out", _make_socket),
        **(
            {"a file": ("out", _writer(b"precious"))}
            if is_directory
            else {"a directory": ("out", pathlib.Path.mkdir), "an empty name": ("", nothing)}
        ),
    }
    if is_directory:
        del places["in a directory that is missing"]  # It is made.
    return [
        Case(
            f"{argument}: {what}",
            tuple(words_fn(name)),
            all_of(others_fn, at(name, make_fn)),
            EITHER if what in _NAMES else FAILURE,
        )
        for what, (name, make_fn) in places.items()
    ]
