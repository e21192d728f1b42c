"""The store of compiles: what is kept is recalled."""

from __future__ import annotations

import numpy as np
import pytest

from environments.inlining.collection.store import ModuleStore, Trajectory, TrajectoryStore
from environments.inlining.compilers.object_size import ObjectSize
from environments.inlining.heuristics import Constant, CostBelow, Default
from tests.environments.inlining.small_modules import Replay

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


def part_of(store: TrajectoryStore, key: str = "key") -> ModuleStore:
    return ModuleStore(store, "module", "project", NAMES, key)


@pytest.fixture
def store():
    store = TrajectoryStore()
    for trajectory in PATHS:
        part_of(store).put(trajectory)
    return store


def test_recorded_paths_come_back_whole(store):
    part = part_of(store)
    for episode in PATHS:
        for recalled in (part.recall(Replay(episode.decisions)), part.get(episode.decisions)):
            assert np.array_equal(recalled.features, episode.features)
            assert recalled.features.dtype == np.int64
            assert np.array_equal(recalled.decisions, episode.decisions)
            assert recalled.size == episode.size and recalled.names == NAMES
            assert recalled.module == "module"
    assert part.get(np.array([1, 0], np.int8)) is None
    empty = trajectory([], [], 7)
    part_of(store, "empty").put(empty)
    recalled = part_of(store, "empty").recall(Default())
    assert recalled.size == empty.size and recalled.features.shape == (0, 2)


@pytest.mark.parametrize(
    ("policy", "text_bytes"),
    [
        # At the root its cost 9 is inlined; there the cost is 20, inlined; then 40, refused.
        (CostBelow(25), 80),
        # The default refuses 9 twice.
        (Default(), 100),
        # These leave the tree.
        (Constant(1), None),
        (Replay([0, 1]), None),
    ],
)
def test_a_policy_that_never_ran_is_followed_through_the_tree(store, policy, text_bytes):
    recalled = part_of(store).recall(policy)
    assert (recalled and recalled.size.text_bytes) == text_bytes
    stranger = part_of(store, "other")
    assert stranger.recall(policy) is None and stranger.get(PATHS[0].decisions) is None


def test_records_come_back_as_they_were(store):
    arrays = {"steps": np.array([3, 5]), "deltas": np.array([-1.5, 2.0]), "none": np.zeros((0, 4))}
    part_of(store).put_record("request", {"steps": np.zeros(1)})
    part_of(store).put_record("request", arrays)
    record = part_of(store).get_record("request")
    assert set(record) == set(arrays)
    for name, array in arrays.items():
        assert np.array_equal(record[name], array) and record[name].dtype == array.dtype
    assert part_of(store, "other").get_record("request") is None


def test_large_values_of_features_and_groups_come_back(store):
    generator = np.random.default_rng(0)
    features = generator.integers(-(2**31), 2**31, (50, 2))
    size = ObjectSize(1050, 50, generator.bytes(50))
    part_of(store).put(Trajectory("m", NAMES, features, np.ones(50, np.int8), size))
    recalled = part_of(store).get(np.ones(50, np.int8))
    assert np.array_equal(recalled.features, features) and recalled.size == size
