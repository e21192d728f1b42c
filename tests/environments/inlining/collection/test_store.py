"""The store of compiles: what is kept is recalled, and never compiled again."""

from __future__ import annotations

import multiprocessing
import resource
import sqlite3
import threading

import numpy as np
import pytest

from environments.inlining.collection.store import Trajectory, TrajectoryStore
from environments.inlining.compilers.object_size import ObjectSize
from environments.inlining.heuristics import Constant, Default, Replay

NAMES = ("cost_estimate", "inlining_default")


def trajectory(decisions: list[int], costs: list[int], text_bytes: int) -> Trajectory:
    """What LLVM sees depends on the decisions before: `costs` are those of this path."""
    features = np.array([[cost, int(cost < 5)] for cost in costs], np.int64).reshape(-1, 2)
    taken = np.array(decisions, np.int8)
    return Trajectory("module", NAMES, features, taken, ObjectSize(text_bytes, text_bytes // 2))


# The tree of a module with up to three call sites. Where the first is inlined, another appears:
#   0 -> 0         100 bytes
#   1 -> 0 -> 0     90 bytes
#   1 -> 1 -> 0     80 bytes
PATHS = [
    trajectory([0, 0], [9, 9], 100),
    trajectory([1, 0, 0], [9, 20, 30], 90),
    trajectory([1, 1, 0], [9, 20, 40], 80),
]


@pytest.fixture(params=["memory", "file"])
def store(request, tmp_path):
    made = TrajectoryStore(None if request.param == "memory" else tmp_path / "cache" / "c.sqlite")
    for path in PATHS:
        made.put("key", "compiler", path)
    yield made
    made.close()


def recall(store: TrajectoryStore, policy, key="key", compiler="compiler"):
    return store.recall(key, compiler, "module", policy.begin("module", NAMES))


@pytest.mark.parametrize("path", PATHS, ids=["00", "100", "110"])
def test_a_recorded_path_is_recalled_whole(store, path):
    recalled = recall(store, Replay(path.decisions))
    assert np.array_equal(recalled.features, path.features) and recalled.features.dtype == np.int64
    assert np.array_equal(recalled.decisions, path.decisions)
    assert recalled.size == path.size and recalled.names == NAMES and recalled.module == "module"


def test_a_policy_that_never_ran_is_followed_through_the_tree(store):
    class LessThan25:
        name = "cost<25"

        def begin(self, module_name, names):
            return lambda features, first: (features[:, 0] < 25).astype(np.int8)

    # At the root its cost 9 is inlined; there the cost is 20, inlined; then 40, refused: 1, 1, 0.
    assert recall(store, LessThan25()).size.text_bytes == 80
    # The default refuses 9 twice: 0, 0.
    assert recall(store, Default()).size.text_bytes == 100


def test_a_path_that_leaves_the_tree_is_not_recalled(store):
    assert recall(store, Constant(1)) is None
    assert recall(store, Replay([0, 1])) is None


@pytest.mark.parametrize("key, compiler", [("other", "compiler"), ("key", "other")])
def test_other_modules_and_compilers_are_not_mixed(store, key, compiler):
    assert recall(store, Default(), key, compiler) is None
    assert store.get(key, compiler, "module", PATHS[0].decisions) is None
    assert store.get_record(key, compiler, "request") is None


def test_one_compile_by_its_decisions(store):
    assert store.get("key", "compiler", "module", PATHS[1].decisions).size == PATHS[1].size
    assert store.get("key", "compiler", "module", np.array([1, 0], np.int8)) is None


def test_records_come_back_as_they_were(store):
    arrays = {"steps": np.array([3, 5]), "deltas": np.array([-1.5, 2.0]), "none": np.zeros((0, 4))}
    store.put_record("key", "compiler", "request", {"steps": np.zeros(1)})
    store.put_record("key", "compiler", "request", arrays)
    found = store.get_record("key", "compiler", "request")
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert np.array_equal(found[name], array) and found[name].dtype == array.dtype


def test_a_compile_without_call_sites(store):
    empty = trajectory([], [], 7)
    store.put("empty", "compiler", empty)
    recalled = recall(store, Default(), "empty")
    assert recalled.size.text_bytes == 7 and recalled.features.shape == (0, 2)


def test_a_file_is_kept_between_runs(tmp_path):
    path = tmp_path / "cache.sqlite"
    first = TrajectoryStore(path)
    first.put("key", "compiler", PATHS[2])
    first.close()
    second = TrajectoryStore(path)
    assert recall(second, Replay([1, 1, 0])).size == PATHS[2].size
    second.close()


def put_many(path, start: int) -> None:
    store = TrajectoryStore(path)
    for number in range(start, start + 30):
        store.put(f"key{number}", "compiler", PATHS[0])
    store.close()


def test_processes_share_a_file(tmp_path):
    path = tmp_path / "cache.sqlite"
    TrajectoryStore(path).close()
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=put_many, args=(path, start)) for start in (0, 20)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    store = TrajectoryStore(path)
    assert all(recall(store, Default(), f"key{number}") for number in range(50))
    store.close()


def test_threads_share_a_store(store):
    failures = []

    def use(start: int) -> None:
        try:
            for number in range(start, start + 40):
                store.put(f"key{number}", "compiler", PATHS[0])
                assert recall(store, Default(), f"key{number}").size == PATHS[0].size
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(start,)) for start in (0, 20, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures


def test_a_full_cache_is_one_clear_line_and_keeps_what_it_has(tmp_path, caplog):
    """The limit of a file's size fails a write as a full disk does, and needs no root."""
    path = tmp_path / "cache.sqlite"
    store = TrajectoryStore(path)
    store.put("kept", "compiler", PATHS[0])
    noise = np.random.default_rng(0).integers(-(2**31), 2**31, (5000, 2))
    large = Trajectory("m", NAMES, noise, np.zeros(5000, np.int8), ObjectSize(1, 1))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5000, limits[1]))
    try:
        store.put("lost", "compiler", large)
        store.put("lost too", "compiler", large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (record,) = caplog.records
    assert str(path) in record.message and "going on without it" in record.message
    assert recall(store, Default(), "kept").size == PATHS[0].size
    assert recall(store, Default(), "lost") is None
    store.close()


def test_a_place_that_cannot_be_made_is_one_clear_line(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    store = TrajectoryStore(tmp_path / "file" / "cache.sqlite")
    store.put("key", "compiler", PATHS[0])
    assert recall(store, Default()) is None and "File exists" in store.problem
    store.close()
    (record,) = caplog.records
    assert "cache: expected to read and write" in record.message and "\n" not in record.message


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    path = tmp_path / "cache.sqlite"
    store = TrajectoryStore(path)
    store.put("key", "compiler", PATHS[0])
    spawn = multiprocessing.get_context("spawn")
    writer = spawn.Process(target=put_many, args=(path, 0))
    writer.start()
    while recall(store, Default(), "key0") is None:
        assert writer.is_alive() or writer.exitcode == 0
    writer.kill()
    writer.join()
    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert recall(store, Default()).size == PATHS[0].size
    store.close()


def test_a_file_of_an_older_version_is_emptied(tmp_path):
    path = tmp_path / "compiles.db"
    older = sqlite3.connect(path)
    older.execute("CREATE TABLE compiles (module TEXT, text_bytes INTEGER)")
    older.execute("INSERT INTO compiles VALUES ('m', 7)")
    older.commit()
    older.close()
    store = TrajectoryStore(path)
    assert store.get_record("m", "c", "r") is None
    store.put_record("m", "c", "r", {"x": np.arange(3)})
    store.close()
    # Opened again, it is of this version, and nothing is lost.
    again = TrajectoryStore(path)
    assert again.get_record("m", "c", "r")["x"].tolist() == [0, 1, 2]
    again.close()
