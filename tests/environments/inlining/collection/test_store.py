"""The store of compiles: what is kept is recalled, and never compiled again."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from environments.inlining.collection.store import Trajectory, TrajectoryStore
from environments.inlining.compilers.object_size import ObjectSize
from environments.inlining.heuristics import Constant, Default, Replay
from tests.environments.caches.entries import execute

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
    store = TrajectoryStore(None if request.param == "memory" else tmp_path / "cache" / "c.sqlite")
    for path in PATHS:
        store.put("key", "compiler", path)
    yield store
    store.close()


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
    record = store.get_record("key", "compiler", "request")
    assert set(record) == set(arrays)
    for name, array in arrays.items():
        assert np.array_equal(record[name], array) and record[name].dtype == array.dtype


def test_a_compile_without_call_sites(store):
    empty = trajectory([], [], 7)
    store.put("empty", "compiler", empty)
    recalled = recall(store, Default(), "empty")
    assert recalled.size.text_bytes == 7 and recalled.features.shape == (0, 2)


def test_a_file_is_kept_between_runs_and_read_again_when_it_changes(tmp_path):
    path = tmp_path / "cache.sqlite"
    for path_of_decisions in PATHS[1:]:
        with contextlib.closing(TrajectoryStore(path)) as store:
            store.put("key", "compiler", path_of_decisions)
    with contextlib.closing(TrajectoryStore(path)) as store:
        assert recall(store, Replay([1, 1, 0])).size == PATHS[2].size
        assert recall(store, Replay([1, 0, 0])).size == PATHS[1].size


def test_a_damaged_compile_is_not_recalled(tmp_path):
    """Otherwise the tree would lead to it."""
    path = tmp_path / "cache.sqlite"
    with contextlib.closing(TrajectoryStore(path)) as store:
        store.put("key", "compiler", PATHS[0])
        execute(path, "UPDATE entries SET part = part || x'01'")
        assert store.recall("key", "compiler", "m", lambda rest, _: np.zeros(len(rest))) is None


def test_large_values_of_features_and_groups_come_back(store):
    generator = np.random.default_rng(0)
    features = generator.integers(-(2**31), 2**31, (50, 2))
    size = ObjectSize(1050, 50, generator.bytes(50))
    store.put("large", "compiler", Trajectory("m", NAMES, features, np.ones(50, np.int8), size))
    recalled = store.get("large", "compiler", "m", np.ones(50, np.int8))
    assert np.array_equal(recalled.features, features) and recalled.size == size
    assert recalled.size.packed_groups == size.packed_groups


def test_a_file_of_an_older_version_is_emptied(tmp_path):
    path = tmp_path / "compiles.db"
    execute(path, "CREATE TABLE compiles (module TEXT, text_bytes INTEGER)")
    execute(path, "INSERT INTO compiles VALUES ('m', 7)")
    with contextlib.closing(TrajectoryStore(path)) as store:
        assert store.get_record("m", "c", "r") is None and store.problem == ""
        store.put_record("m", "c", "r", {"x": np.arange(3)})
    # Opened again, it is of this version, and nothing is lost.
    with contextlib.closing(TrajectoryStore(path)) as store:
        assert store.get_record("m", "c", "r")["x"].tolist() == [0, 1, 2]


def test_a_place_that_cannot_be_made_is_known_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    assert "File exists" in TrajectoryStore(tmp_path / "file" / "cache.sqlite").problem
