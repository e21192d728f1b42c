"""A cache of small files gives back what was put into it or nothing, whatever happens to it."""

from __future__ import annotations

import logging
import os
import random
import resource
import time

import pytest

from environments.caches.files import FileCache, clear, files_in
from tests.environments.caches.processes import hammered

BOUND_BYTES = 200_000


def content_of(key: str) -> bytes:
    """What is put under a key, so that each reader knows what is right; 0 to 9 kB."""
    return random.Random(key).randbytes(random.Random(key).randrange(9000))


def files(directory):
    return sorted(one.path for one in files_in(directory))


@pytest.fixture
def cache(tmp_path):
    return FileCache(tmp_path / "made" / "here", BOUND_BYTES)


def test_what_is_put_is_there_for_everybody(cache, tmp_path):
    assert cache.get("a") is None
    assert cache.put("a", b"one") == b"one" and cache.put("", b"") == b""
    other = FileCache(tmp_path / "made" / "here", BOUND_BYTES)
    assert (other.get("a"), other.get(""), other.get("b")) == (b"one", b"", None)
    other.discard("a")
    other.discard("a")
    assert cache.get("a") is None and cache.get("") == b""


def test_the_first_of_two_counts(cache):
    cache.put("a", b"one")
    assert cache.put("a", b"two") == b"one" and cache.get("a") == b"one"


def test_another_version_sees_nothing_of_it(cache, tmp_path):
    cache.put("a", b"one")
    assert FileCache(tmp_path / "made" / "here", BOUND_BYTES, version=2).get("a") is None


def test_what_was_not_used_for_longest_makes_room(tmp_path):
    # Each entry takes a block of 4096 bytes, so three of them fit.
    cache = FileCache(tmp_path, 3 * 4096)
    for age_s, key in ((3000, "a"), (2000, "b"), (1000, "c")):
        before = set(files(tmp_path))
        cache.put(key, b"content")
        (file,) = set(files(tmp_path)) - before
        os.utime(file, (time.time() - age_s,) * 2)
    assert cache.get("a") == b"content"  # so that it is the one used last
    cache.put("d", b"content")
    assert [cache.get(key) is not None for key in "abcd"] == [True, False, True, True]


def test_an_entry_larger_than_the_cache_is_kept_alone(tmp_path):
    cache = FileCache(tmp_path, 3 * 4096)
    for key in "abc":
        cache.put(key, b"small")
    cache.put("large", bytes(50_000))
    assert cache.get("large") == bytes(50_000) and len(files(tmp_path)) == 1


def test_it_stays_within_its_bound(tmp_path):
    cache = FileCache(tmp_path, 2_000_000)  # two buckets
    for number in range(150):
        cache.put(str(number), bytes(20_000))
    assert len({path.parent for path in files(tmp_path)}) == 2
    assert 1_900_000 < sum(one.size_bytes for one in files_in(tmp_path)) <= 2_000_000


def damages(whole: bytes, generator: random.Random):
    yield b""
    yield bytes(len(whole))
    yield whole + b"x"
    for _ in range(20):
        yield whole[: generator.randrange(len(whole))]
        flipped = bytearray(whole)
        flipped[generator.randrange(len(whole))] ^= 1 << generator.randrange(8)
        yield bytes(flipped)


def test_what_is_damaged_is_absent_and_can_be_put_again(cache, tmp_path):
    cache.put("a", content_of("a"))
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    for number, damaged in enumerate(damages(whole, random.Random(0))):
        file.write_bytes(damaged)
        if number % 2:
            assert cache.get("a") is None and not file.exists()
        assert cache.put("a", content_of("a")) == content_of("a")
        assert cache.get("a") == content_of("a")


def test_an_entry_in_the_place_of_another_is_absent(cache, tmp_path):
    cache.put("a", b"one")
    (file,) = files(tmp_path)
    cache.put("b", b"two")
    (other,) = set(files(tmp_path)) - {file}
    other.write_bytes(file.read_bytes())
    assert cache.get("b") is None and cache.get("a") == b"one"


def test_a_place_that_cannot_be_written_is_told_once(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    cache = FileCache(tmp_path / "file" / "cache", BOUND_BYTES)
    with caplog.at_level(logging.WARNING):
        assert cache.put("a", b"one") == b"one" and cache.put("b", b"two") == b"two"
    assert cache.get("a") is None
    (record,) = caplog.records
    assert "going on without it" in record.message and "\n" not in record.message


def test_a_write_that_fails_halfway_leaves_nothing_behind(cache, tmp_path, caplog):
    """The limit of a file's size fails a write as a full disk does, and needs no root."""
    cache.put("a", b"one")
    before = files(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        assert cache.put("b", bytes(50_000)) == bytes(50_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "File too large" in caplog.text
    assert files(tmp_path) == before and cache.get("a") == b"one" and cache.get("b") is None


def test_it_is_cleared_as_far_as_it_is_there(cache, tmp_path):
    cache.put("a", b"one")
    clear(tmp_path / "made")
    assert cache.get("a") is None and list(tmp_path.iterdir()) == [tmp_path / "made"]
    clear(tmp_path / "made")
    clear(tmp_path / "never made")
    assert cache.put("a", b"two") == b"two" and cache.get("a") == b"two"


def hammer(directory, seed: int, over, ready) -> None:
    """Read and write at random; fail if anything read is wrong."""
    generator = random.Random(seed)
    cache = FileCache(directory, BOUND_BYTES)
    num_found = 0
    while not over.exists() or not num_found:
        key = str(generator.randrange(100))
        if generator.random() < 0.5:
            assert cache.put(key, content_of(key)) == content_of(key)
        else:
            found = cache.get(key)
            assert found in (None, content_of(key))
            num_found += found is not None
        ready.set()


def damage(directory, generator: random.Random) -> None:
    paths = files(directory)
    if not paths:
        return
    path = generator.choice(paths)
    try:
        size = path.stat().st_size
        if generator.random() < 0.3:
            os.truncate(path, generator.randrange(size + 1))
        elif size:
            with path.open("r+b") as file:
                file.seek(generator.randrange(size))
                file.write(generator.randbytes(1))
    except FileNotFoundError:
        pass


@pytest.mark.parametrize(
    "seconds", [0.0, pytest.param(60.0, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_processes_hammer_it_while_it_is_cleared_and_damaged_and_some_are_killed(tmp_path, seconds):
    directory = tmp_path / "cache"

    def disturb(num_killed: int, generator: random.Random) -> None:
        for _ in range(5):
            damage(directory, generator)
        if num_killed % 4 == 0:
            clear(directory)

    hammered(hammer, directory, disturb, seconds)
    # What the killed left behind goes like everything that is not used.
    cache = FileCache(directory, BOUND_BYTES)
    for number in range(100):
        assert cache.put(str(number), content_of(str(number))) == content_of(str(number))
    assert sum(one.size_bytes for one in files_in(directory)) <= BOUND_BYTES
