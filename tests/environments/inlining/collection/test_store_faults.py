"""Whatever happens to the file of compiles, a compile is recalled as it was kept, or not at all."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import time

import numpy as np
import pytest

from environments.caches import database
from environments.inlining.collection.store import Trajectory, TrajectoryStore
from environments.inlining.compilers.object_size import ObjectSize
from tests.environments.caches.processes import hammered, started

NAMES = ("cost_estimate", "callee_blocks")
NUM_MODULES = 40


def compile_of(number: int) -> Trajectory:
    """What is kept of a module, so that each reader knows what is right."""
    generator = np.random.default_rng(number)
    features = generator.integers(-(2**31), 2**31, (number * 7, 2))
    decisions = generator.integers(0, 2, len(features)).astype(np.int8)
    size = ObjectSize(number + 1000, number, generator.bytes(50))
    return Trajectory(f"module {number}", NAMES, features, decisions, size)


def put(store: TrajectoryStore, number: int) -> None:
    store.put(f"key {number}", "clang", compile_of(number))
    store.put_record(f"key {number}", "clang", "plain", {"size": np.array([number])})


def is_kept(store: TrajectoryStore, number: int) -> bool:
    """Whether a module's compile is kept; fails if anything else than it was found."""
    wanted = compile_of(number)
    found = store.get(f"key {number}", "clang", wanted.module, wanted.decisions)
    record = store.get_record(f"key {number}", "clang", "plain")
    assert record is None or record["size"].tolist() == [number]
    if found is None:
        return False
    assert np.array_equal(found.features, wanted.features) and found.names == NAMES
    assert found.size == wanted.size and found.size.packed_groups == wanted.size.packed_groups
    return True


@contextlib.contextmanager
def opened(path, **more):
    store = TrajectoryStore(path, **more)
    yield store
    store.close()


@pytest.fixture
def path(tmp_path):
    with opened(tmp_path / "compiles.db") as store:
        for number in range(NUM_MODULES):
            put(store, number)
    return tmp_path / "compiles.db"


def damage(path, generator: random.Random) -> None:
    size = path.stat().st_size
    if generator.random() < 0.3:
        os.truncate(path, generator.randrange(size))
        return
    with path.open("r+b") as file:
        for _ in range(generator.choice((1, 10, 1000))):
            # Half of the damage is where it hurts most: in the header and in the schema.
            file.seek(generator.randrange(generator.choice((size, min(size, 200)))))
            file.write(generator.randbytes(1))


@pytest.mark.parametrize(
    "seeds",
    [range(40), pytest.param(range(40, 3000), marks=pytest.mark.slow)],
    ids=["some", "many"],
)
def test_after_any_damage_values_are_right_or_absent_and_can_be_kept_again(path, seeds):
    whole = path.read_bytes()
    num_kept = 0
    for seed in seeds:
        path.write_bytes(whole)
        damage(path, random.Random(seed))
        with opened(path) as store:
            num_kept += sum(is_kept(store, number) for number in range(NUM_MODULES))
            put(store, 7)
            assert is_kept(store, 7), seed
            assert store.problem == ""
    assert 0.1 < num_kept / (len(seeds) * NUM_MODULES) < 0.9


@pytest.mark.parametrize(
    "column, value",
    [
        ("text_bytes", 1),
        ("exec_bytes", "1007"),
        ("features", b""),
        ("groups", "text"),
        ("decisions", b"\1"),
        ("digest", b""),
        ("digest", 7),
    ],
)
def test_what_sqlite_does_not_notice_the_digest_does(path, column, value):
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE compiles SET {column} = ? WHERE module = 'key 7'", (value,))
    with opened(path) as store:
        assert store.recall("key 7", "clang", "m", lambda rest, first: np.zeros(len(rest))) is None
        assert not is_kept(store, 7) and is_kept(store, 8)
        put(store, 7)
        assert is_kept(store, 7)


def test_rows_in_the_place_of_others_are_absent(path):
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM records WHERE module = 'key 8'")
        db.execute("UPDATE records SET module = 'key 8' WHERE module = 'key 7'")
    with opened(path) as store:
        assert store.get_record("key 8", "clang", "plain") is None


def test_a_header_that_forbids_writing_is_damage(path):
    """SQLite opens a file of a later format than it knows, and does not write to it."""
    with path.open("r+b") as file:
        file.seek(18)
        file.write(b"\x77")
    with opened(path) as store:
        put(store, 50)
        assert is_kept(store, 50) and store.problem == ""


def test_a_file_that_may_not_be_written_is_read_all_the_same(path, caplog, monkeypatch):
    with opened(path) as store:
        # As for a user who is not root, and may only read.
        store._database._db.execute("PRAGMA query_only = ON")
        monkeypatch.setattr(database.os, "access", lambda *_: False)
        put(store, 50)
        assert is_kept(store, 7) and not is_kept(store, 50)
    assert "attempt to write a readonly database; going on without it" in caplog.text


def test_damage_is_told_in_one_line_and_set_aside(path, caplog):
    path.write_bytes(b"this is no database " * 1000)
    with opened(path) as store:
        put(store, 7)
        assert is_kept(store, 7) and not is_kept(store, 8)
    (record,) = caplog.records
    assert "is damaged (file is not a database)" in record.message and "\n" not in record.message
    assert path.with_name("compiles.db.damaged").read_bytes().startswith(b"this is no database")


def test_who_has_the_damaged_file_open_goes_on_with_the_new_one(path):
    with opened(path) as one, opened(path) as other:
        assert is_kept(one, 7) and is_kept(other, 7)
        path.write_bytes(bytes(path.stat().st_size))
        put(one, 8)
        assert is_kept(one, 8)
        put(other, 9)
        assert is_kept(other, 8) and is_kept(other, 9) and is_kept(one, 9)


def test_who_has_a_file_open_that_was_deleted_begins_a_new_one(path):
    with opened(path) as store:
        path.unlink()
        put(store, 7)
        assert is_kept(store, 7)
    with opened(path) as store:
        assert is_kept(store, 7) and not is_kept(store, 8)


def lock_and_stop(path, ready) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    ready.set()
    os.kill(os.getpid(), signal.SIGSTOP)


def test_a_process_that_was_stopped_with_the_lock_ends_nobodys_run(path, caplog, monkeypatch):
    monkeypatch.setattr(database, "_WAIT_S", 0.2)
    monkeypatch.setattr(database, "_PAUSE_S", 0.5)
    with opened(path) as store, started(lock_and_stop, path) as stopped:
        for number in range(100):  # It does not wait for the lock each time.
            put(store, number)
            assert not is_kept(store, number)
        (record,) = caplog.records
        assert "database is locked; going on without it" in record.message
        stopped.kill()
        stopped.join()
        while store.problem:
            is_kept(store, 7)
        assert is_kept(store, 7)
        put(store, 50)
        assert is_kept(store, 50)


def test_the_modules_not_used_for_longest_make_room(tmp_path):
    path, now_h = tmp_path / "compiles.db", int(time.time()) // 3600
    with opened(path, bound_bytes=200_000) as store:
        for number in range(20):
            put(store, number)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        for number in range(20):
            values = now_h - 100 - number, f"key {number}"
            db.execute("UPDATE used SET used_h = ? WHERE module = ?", values)
    with opened(path, bound_bytes=200_000) as store:
        assert is_kept(store, 19)  # So that it is used last, and not first.
        for number in range(100, 130):
            put(store, number)
        kept = [number for number in range(20) if is_kept(store, number)]
        assert is_kept(store, 129)
    # What is kept was used later than what is not.
    assert kept[-1] == 19 and kept[:-1] == list(range(len(kept) - 1)) and len(kept) < 20
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert 180_000 < database._used_bytes(db) <= 200_000


def hammer(path, seed: int, over, ready) -> None:
    generator, num_kept = random.Random(seed), 0
    with opened(path, bound_bytes=100_000) as store:
        while not over.exists() or not num_kept:
            number = generator.randrange(100)
            if generator.random() < 0.5:
                put(store, number)
            else:
                num_kept += is_kept(store, number)
            ready.set()


@pytest.mark.parametrize(
    "seconds", [0.0, pytest.param(60.0, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_processes_hammer_it_while_it_is_cleared_and_some_are_killed(path, seconds):
    def disturb(num_killed: int, generator: random.Random) -> None:
        if num_killed % 4 == 0:
            assert database.clear(path)

    hammered(hammer, path, disturb, seconds)
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert not path.with_name("compiles.db.damaged").exists()
