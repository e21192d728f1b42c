"""Bad inputs of `tfrl cache`, and of `tfrl doctor`, which looks at a cache too.

A cache that is damaged is no failure: it is shown as far as it can be read, and begun anew.
"""

from __future__ import annotations

import functools
import os
import pathlib
import sqlite3
import tempfile
from collections.abc import Iterator

from tools.benchmarks.bad_inputs import damage
from tools.benchmarks.bad_inputs.case import EITHER, FAILURE, PERHAPS, Case, MakeFn, usage
from tools.benchmarks.bad_inputs.verbs import programs

_PLACES = {
    "the cache directory": ".",
    "compiles": "compiles-2.db",
    "its journal": "compiles-2.db-journal",
    "costs": "costs",
    "verified rules": "verified_rules",
    "plugins": "plugins",
    "the lock of the plugins": "plugins/.lock",
}


def info(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl cache info`."""
    return [*_damaged(("cache", "info", "--json"), seed, (0,), True), *usage("cache info", *_WRONG)]


def clear(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl cache clear`."""
    names = ("nonsense", "", "Compiles", "compiles,costs", "../costs", "*", "a\nb", "c" * 10_000)
    return [
        *_damaged(("cache", "clear"), seed, PERHAPS, False),
        *(Case(f"NAME: {one[:20]!r}", ("cache", "clear", one), status=(2,)) for one in names),
        *usage("cache", ("no verb", ""), ("an unknown verb", "burn")),
        *usage("cache clear", ("no such option", "--all"), ("one wrong name", "costs cost")),
    ]


_WRONG = (("a name", "compiles"), ("no such option", "--nonsense"))


def _damaged(
    words: tuple[str, ...], seed: int, status: tuple[int, ...], reports: bool
) -> Iterator[Case]:
    for place, name in _PLACES.items():
        for one in damage.files(place, lambda path: (path,), _database(), seed):
            if one.words == ("given",):
                yield Case(
                    one.what, words, _in_cache(name, one.make_fn), status, reports=reports
                )  # fmt: skip
    for number in range(10):
        bad = damage.flipped(_database(), seed, number)
        make_fn = _in_cache(_PLACES["compiles"], functools.partial(_write, content=bad))
        yield Case(f"compiles: flipped bits {number}", words, make_fn, status, reports=reports)
    for what, environment in _SURROUNDINGS.items():
        yield Case(
            f"surroundings: {what}", words, lambda path: (path / "file").write_bytes(b""), status,
            environment=environment, reports=reports,
        )  # fmt: skip


_SURROUNDINGS = {
    "a cache that is a file": {"XDG_CACHE_HOME": "file"},
    "a cache in a file": {"XDG_CACHE_HOME": "file/cache"},
    "a cache that is a device": {"XDG_CACHE_HOME": "/dev/zero"},
    "a cache that is no path": {"XDG_CACHE_HOME": "/proc/nowhere"},
    "a cache of too long a name": {"XDG_CACHE_HOME": "/" + "n" * 5000},
    "a cache whose name is not UTF-8": {"XDG_CACHE_HOME": os.fsdecode(b"/\xff\xfe")},
    "no home": {"HOME": "", "XDG_CACHE_HOME": ""},
    "a home that is missing": {"HOME": "/no/such/home", "XDG_CACHE_HOME": ""},
}


def _write(directory: pathlib.Path, content: bytes) -> None:
    (directory / "given").write_bytes(content)


def _in_cache(name: str, make_fn: MakeFn) -> MakeFn:
    """Return what puts a damaged file into the cache directory of the case."""

    def make(directory: pathlib.Path) -> None:
        cache = directory.parent / "home" / ".cache" / "tfrl"
        make_fn(directory)
        place = cache / name if name != "." else cache
        place.parent.mkdir(parents=True)
        if os.path.lexists(directory / "given"):
            (directory / "given").rename(place)

    return make


def _database() -> bytes:
    """Return a database with the tables of the cache of compiles, and some rows."""
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "a.db"
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA user_version = 2")
            for table in ("compiles", "records"):
                db.execute(f"CREATE TABLE {table} (key BLOB PRIMARY KEY, value BLOB)")
                rows = [(bytes([k]) * 32, bytes(200)) for k in range(50)]
                db.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
        db.close()
        return path.read_bytes()


def doctor(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl doctor`; what is wrong is in its report."""
    return [
        *_looked_at(seed),
        *_on_path(),
        *(
            Case(
                f"surroundings: {what}", ("doctor", "--json"), _bin(), PERHAPS, reports=True,
                environment={"PATH": "bin", **environment},
            )
            for what, environment in _SURROUNDINGS_OF_DOCTOR.items()
        ),
        *usage(
            "doctor", ("a name", "clang"), ("no such option", "--nonsense"),
            ("a cache without a name", "--cache"),
        ),
    ]  # fmt: skip


_SURROUNDINGS_OF_DOCTOR = {
    **_SURROUNDINGS,
    "a PATH of nothing": {"PATH": ""},
    "a PATH that is missing": {"PATH": "/no/such/directory"},
    "a TMPDIR that is missing": {"TMPDIR": "nowhere"},
    "a TMPDIR that cannot be written": {"TMPDIR": "/proc"},
    "a TMPDIR of a long name": {"TMPDIR": "/tmp/" + "n" * 200},
}


_BEGUN = tuple(
    f"{name}{rest}"
    for name in ("given", "file", "nowhere", "two\nlines", os.fsdecode(b"name-\xff\xfe"))
    for rest in ("", "-journal", ".damaged")
)


def _looked_at(seed: int) -> Iterator[Case]:
    words = ("doctor", "--json")
    for one in damage.files("--cache", lambda path: (*words, f"--cache={path}"), _database(), seed):
        # A cache is begun where none is, and anew where one is damaged.
        is_usage = one.status == EITHER
        yield Case(
            one.what, one.words, _bins(one.make_fn), (0, 1, 2) if is_usage else (0, *FAILURE),
            _BEGUN,
            environment={"PATH": "bin"}, reports=not is_usage,
        )  # fmt: skip


def _on_path() -> Iterator[Case]:
    """Yield machines whose clangs are none."""
    for name in ("clang", "clang-17", "clang-19", "clang-22"):
        for what, (program, make_fn) in (programs.NOT_STARTING | programs.NO_CLANGS).items():
            if program.startswith("./"):
                yield Case(
                    f"{name}: {what}", ("doctor", "--json"),
                    _bins(_renamed(make_fn, f"bin/{name}")), PERHAPS,
                    environment={"PATH": "bin"}, reports=True,
                )  # fmt: skip


def _renamed(make_fn: MakeFn, name: str) -> MakeFn:
    def make(directory: pathlib.Path) -> None:
        make_fn(directory)
        (directory / programs.NAME).rename(directory / name)

    return make


def _bins(make_fn: MakeFn) -> MakeFn:
    def make(directory: pathlib.Path) -> None:
        _bin()(directory)
        make_fn(directory)

    return make


def _bin() -> MakeFn:
    """Return what makes a directory of programs in which there is no clang."""

    def make(directory: pathlib.Path) -> None:
        (directory / "bin").mkdir()
        (directory / "file").write_bytes(b"")

    return make
