"""Whatever happens to a cache's file, it gives back what was put into it, or nothing."""

from __future__ import annotations

import contextlib
import copy
import os
import random
import resource
import signal
import sqlite3
import threading
import time

import pytest

from environments.caches import cache as caches
from environments.caches.cache import Cache
from tests.environments.caches.entries import execute
from tests.environments.caches.processes import hammered, started

NUM_KEYS = 40
BOUND_BYTES = 10_000_000


def content_of(number: int, part: bytes = b"") -> bytes:
    """What is put under a key, so that each reader knows what is right; 0 to 3 kB."""
    return random.Random(f"{number} {part!r}").randbytes(number * 37 % 3000)


def put(cache: Cache, number: int) -> None:
    for part in (b"", b"more"):
        cache.put(f"key {number}", content_of(number, part), part)


def is_kept(cache: Cache, number: int) -> bool:
    """Whether a key's contents are kept; fails if anything else is."""
    parts = cache.parts(f"key {number}")
    assert all(content == content_of(number, part) for part, content in parts.items())
    assert cache.get(f"key {number}", b"more") in (None, content_of(number, b"more"))
    return list(parts) == [b"", b"more"]


@contextlib.contextmanager
def opened(path, bound_bytes: int = BOUND_BYTES, version: int = 1):
    cache = Cache(path, bound_bytes, version)
    yield cache
    cache.close()


@pytest.fixture
def path(tmp_path):
    """A cache with all keys."""
    with opened(tmp_path / "made" / "a.db") as cache:
        for number in range(NUM_KEYS):
            put(cache, number)
    return tmp_path / "made" / "a.db"


@pytest.mark.parametrize("is_file", [True, False])
def test_what_is_put_is_there_in_order_and_replaced(tmp_path, is_file):
    with opened(tmp_path / "a.db" if is_file else None) as cache:
        assert cache.get("a") is None and cache.parts("a") == {}
        cache.put("a", b"second", b"2")
        cache.put("a", b"", b"1")
        cache.put("", b"empty key")
        assert list(cache.parts("a").items()) == [(b"1", b""), (b"2", b"second")]
        assert (cache.get("a", b"1"), cache.get("a"), cache.get("")) == (b"", None, b"empty key")
        cache.put("a", b"other", b"2")
        assert cache.get("a", b"2") == b"other"


def test_the_first_of_two_counts_for_both(path):
    with opened(path) as left, opened(path) as right:
        assert left.put_first("a", b"left") == right.put_first("a", b"right") == b"left"
        # A copy that is sent to another process opens the same file.
        assert copy.copy(left).put_first("a", b"copy") == b"left"
        execute(path, "UPDATE entries SET content = ? WHERE key = 'a'", b"damaged")
        assert right.put_first("a", b"right") == b"right" == left.get("a")


def test_a_file_of_another_version_is_emptied(path):
    execute(path, "CREATE TABLE of_older_versions (name TEXT)")
    with opened(path, version=2) as cache:
        assert not is_kept(cache, 7)
        put(cache, 7)
    with opened(path, version=2) as cache:
        assert is_kept(cache, 7)
    tables = execute(path, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    assert tables == [("entries",), ("used",)]


def test_threads_share_a_cache(path):
    failures = []

    def use(start: int) -> None:
        for number in range(start, start + 40):
            put(cache, number)
            if not is_kept(cache, number):
                failures.append(number)

    with opened(path) as cache:
        threads = [threading.Thread(target=use, args=(start,)) for start in (0, 20, 1000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not failures


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
def test_after_any_damage_contents_are_right_or_absent_and_can_be_kept_again(path, seeds):
    whole = path.read_bytes()
    num_kept = 0
    for seed in seeds:
        path.write_bytes(whole)
        damage(path, random.Random(seed))
        with opened(path) as cache:
            num_kept += sum(is_kept(cache, number) for number in range(NUM_KEYS))
            put(cache, 7)
            assert is_kept(cache, 7), seed
            assert cache.problem == ""
    assert 0.1 < num_kept / (len(seeds) * NUM_KEYS) < 0.9


@pytest.mark.parametrize(
    "change",
    [
        "content = ''",
        "content = 'text'",
        "content = 7",
        "part = x'01'",
        "digest = 7",
        "key = 'key 9'",
    ],
)
def test_what_sqlite_does_not_notice_the_digest_does(path, change):
    execute(path, "DELETE FROM entries WHERE key = 'key 9'")
    execute(path, f"UPDATE entries SET {change} WHERE key = 'key 7' AND part = x''")
    with opened(path) as cache:
        assert not is_kept(cache, 7) and is_kept(cache, 8) and cache.parts("key 9") == {}
        put(cache, 7)
        assert is_kept(cache, 7)


def test_a_header_that_forbids_writing_is_damage(path):
    """SQLite opens a file of a later format than it knows, and does not write to it."""
    with path.open("r+b") as file:
        file.seek(18)
        file.write(b"\x77")
    with opened(path) as cache:
        put(cache, 50)
        assert is_kept(cache, 50) and cache.problem == ""


def test_a_file_that_may_not_be_written_is_read_all_the_same(path, caplog, monkeypatch):
    """As for a user who is not root, and may only read."""
    connect = sqlite3.connect

    def connect_to_read(*arguments, **options):
        db = connect(*arguments, **options)
        db.execute("PRAGMA query_only = ON")
        return db

    monkeypatch.setattr(sqlite3, "connect", connect_to_read)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with opened(path) as cache:
        put(cache, 50)
        assert is_kept(cache, 7) and not is_kept(cache, 50)
    assert "attempt to write a readonly database; going on without it" in caplog.text


def test_a_place_that_cannot_be_made_is_said_once(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with opened(tmp_path / "file" / "a.db") as cache:
        assert cache.put_first("a", b"content") == b"content"
        put(cache, 7)
        assert not is_kept(cache, 7) and "File exists" in cache.problem
    (record,) = caplog.records
    assert "cache: expected to read and write" in record.message and "\n" not in record.message


def test_a_full_disk_is_said_once_and_takes_nothing_away(path, caplog):
    """The limit of a file's size fails a write as a full disk does, and needs no root."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(path) as cache:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5000, limits[1]))
        try:
            for key in ("lost", "lost too"):
                cache.put(key, bytes(50_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        (record,) = caplog.records
        assert str(path) in record.message and "going on without it" in record.message
        assert is_kept(cache, 7) and cache.get("lost") is None


def test_damage_is_said_in_one_line_and_set_aside(path, caplog):
    path.write_bytes(b"this is no database " * 1000)
    with opened(path) as cache:
        put(cache, 7)
        assert is_kept(cache, 7) and not is_kept(cache, 8)
    (record,) = caplog.records
    assert "is damaged (file is not a database)" in record.message and "\n" not in record.message
    assert path.with_name("a.db.damaged").read_bytes().startswith(b"this is no database")


def test_who_has_the_damaged_file_open_goes_on_with_the_new_one(path):
    with opened(path) as left, opened(path) as right:
        assert is_kept(left, 7) and is_kept(right, 7)
        path.write_bytes(bytes(path.stat().st_size))
        put(left, 8)
        assert is_kept(left, 8)
        put(right, 9)
        assert is_kept(right, 8) and is_kept(right, 9) and is_kept(left, 9)


def test_who_has_a_file_open_that_was_deleted_begins_a_new_one(path):
    with opened(path) as cache:
        assert is_kept(cache, 7)
        path.unlink()
        put(cache, 7)
        assert is_kept(cache, 7)
    with opened(path) as cache:
        assert is_kept(cache, 7) and not is_kept(cache, 8)


def lock_and_stop(path, ready) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    ready.set()
    os.kill(os.getpid(), signal.SIGSTOP)


def test_a_process_that_was_stopped_with_the_lock_ends_nobodys_run(path, caplog, monkeypatch):
    monkeypatch.setattr(caches, "_WAIT_S", 0.2)
    monkeypatch.setattr(caches, "_PAUSE_S", 0.5)
    with opened(path) as cache, started(lock_and_stop, path) as stopped:
        for number in range(100):  # It does not wait for the lock each time.
            put(cache, number)
            assert not is_kept(cache, number)
        (record,) = caplog.records
        assert "database is locked; going on without it" in record.message
        stopped.kill()
        stopped.join()
        cache.open()
        while cache.problem:
            is_kept(cache, 7)
        assert is_kept(cache, 7)
        put(cache, 50)
        assert is_kept(cache, 50)


def test_the_keys_not_used_for_longest_make_room(tmp_path):
    path, now_h = tmp_path / "a.db", int(time.time()) // 3600
    with opened(path, 200_000) as cache:
        for number in range(30, 50):
            put(cache, number)
    for number in range(30, 50):
        used_h = now_h - 100 - number
        execute(path, "UPDATE used SET used_h = ? WHERE key = ?", used_h, f"key {number}")
    with opened(path, 200_000) as cache:
        assert is_kept(cache, 49)  # So that it is used last, and not first.
        for number in range(28):
            cache.put(f"new {number}", bytes(5000))
        remaining = [number for number in range(30, 50) if is_kept(cache, number)]
        assert cache.get("new 27") == bytes(5000)
    # What is kept was used later than what is not.
    assert remaining == [*range(30, 29 + len(remaining)), 49] and len(remaining) < 20
    numbers = [execute(path, f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count")]
    assert 180_000 < (numbers[0] - numbers[1]) * 4096 <= 200_000


def hammer(path, seed: int, over, ready) -> None:
    """Read and write at random; fail if anything read is wrong."""
    generator, num_kept = random.Random(seed), 0
    with opened(path, 100_000) as cache:
        while not over.exists() or not num_kept:
            number = generator.randrange(100)
            if generator.random() < 0.5:
                put(cache, number)
            else:
                num_kept += is_kept(cache, number)
            ready.set()


@pytest.mark.parametrize(
    "seconds", [0.0, pytest.param(60.0, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_processes_hammer_it_while_it_is_cleared_and_some_are_killed(path, seconds):
    def disturb(num_killed: int, generator: random.Random) -> None:
        if num_killed % 4 == 0:
            assert caches.clear(path)

    hammered(hammer, path, disturb, seconds)
    assert execute(path, "PRAGMA integrity_check") == [("ok",)]
    assert not path.with_name("a.db.damaged").exists()
    # It may have been cleared last of all; it is as good as before.
    with opened(path) as cache:
        put(cache, 7)
        assert is_kept(cache, 7)
    assert caches.count_entries(path) > 0 and caches.clear(path)
    assert caches.count_entries(path) == 0
