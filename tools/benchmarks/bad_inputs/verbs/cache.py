"""Bad inputs of `tfrl cache`.

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
from tools.benchmarks.bad_inputs.case import PERHAPS, Case, MakeFn, usage, with_file

_PLACES = {
    "the cache directory": ".",
    "compiles": "compiles-3.db",
    "its journal": "compiles-3.db-journal",
    "costs": "costs-5.db",
    "verified rules": "verified_rules-1.db",
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
    good = database()
    for place, name in _PLACES.items():
        for what, make_fn in damage.in_place(place, good, seed):
            yield Case(what, words, _in_cache(name, make_fn), status, reports=reports)
    for number in range(10):
        bad = damage.flipped(good, seed, number)
        make_fn = functools.partial(pathlib.Path.write_bytes, data=bad)
        yield Case(
            f"compiles: flipped bits {number}", words, _in_cache(_PLACES["compiles"], make_fn),
            status, reports=reports,
        )  # fmt: skip
    for what, environment in SURROUNDINGS.items():
        yield Case(
            f"surroundings: {what}", words, with_file("file", b""), status,
            environment=environment, reports=reports,
        )  # fmt: skip


SURROUNDINGS = {
    "a cache that is a file": {"XDG_CACHE_HOME": "file"},
    "a cache in a file": {"XDG_CACHE_HOME": "file/cache"},
    "a cache that is a device": {"XDG_CACHE_HOME": "/dev/zero"},
    "a cache that is no path": {"XDG_CACHE_HOME": "/proc/nowhere"},
    "a cache of too long a name": {"XDG_CACHE_HOME": "/" + "n" * 5000},
    "a cache whose name is not UTF-8": {"XDG_CACHE_HOME": os.fsdecode(b"/\xff\xfe")},
    "no home": {"HOME": "", "XDG_CACHE_HOME": ""},
    "a home that is missing": {"HOME": "/no/such/home", "XDG_CACHE_HOME": ""},
}


def _in_cache(name: str, make_fn: MakeFn) -> MakeFn:
    """Return what makes something in the cache directory of the case."""

    def make(directory: pathlib.Path) -> None:
        place = directory.parent / "home" / ".cache" / "tfrl" / name
        place.parent.mkdir(parents=True)
        make_fn(place)

    return make


def database() -> bytes:
    """Return a database with the tables of the cache of compiles, and some rows."""
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "a.db"
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA user_version = 3")
            for table in ("entries", "used"):
                db.execute(f"CREATE TABLE {table} (key BLOB PRIMARY KEY, value BLOB)")
                rows = [(bytes([k]) * 32, bytes(200)) for k in range(50)]
                db.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
        db.close()
        return path.read_bytes()
