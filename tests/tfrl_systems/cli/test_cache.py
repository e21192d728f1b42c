"""`tfrl cache` shows what is kept, and clears it."""

from __future__ import annotations

import numpy as np
import pytest

from environments.caches.table import CACHES, COMPILES, COSTS, MINIMA, PLUGINS
from environments.inlining.collection.store import ModuleStore, Trajectory, TrajectoryStore
from environments.inlining.compilers.object_size import ObjectSize
from environments.machine import cache_directory

NAMES = ["compiles", "costs", "verified_rules", "minima", "plugins"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


@pytest.fixture
def filled():
    """Two costs, one minimum, one compile, and the record of another."""
    COSTS.open().put("a", b"1")
    COSTS.open().put("b", bytes(5000))
    MINIMA.open().put("a", b"2")
    store = TrajectoryStore(COMPILES.path)
    features, decisions = np.zeros((1, 1), np.int64), np.ones(1, np.int8)
    compiles = ModuleStore(store, "a", "project", ("cost",), "a by clang")
    compiles.put(Trajectory("a", ("cost",), features, decisions, ObjectSize(7, 5)))
    compiles.put_record("plain", {"text_bytes": np.array(9)})
    store.close()


def usages(tfrl):
    return {usage["name"]: usage for usage in tfrl("cache", "info", "--json").json["caches"]}


def test_nothing_is_made_by_looking(tfrl):
    assert list(usages(tfrl)) == NAMES
    assert all(usage["size_bytes"] == usage["entries"] == 0 for usage in usages(tfrl).values())
    assert tfrl("cache", "clear").status == 0
    assert not cache_directory().exists()


def test_what_is_kept_is_counted_and_cleared_by_name(tfrl, filled):
    before = usages(tfrl)
    assert [before[name]["entries"] for name in NAMES] == [2, 2, 0, 1, 0]
    for name in ("compiles", "costs", "minima"):
        assert before[name]["size_bytes"] == CACHES[name].path.stat().st_size > 0
    assert before["compiles"]["path"] == str(CACHES["compiles"].path)
    assert before["compiles"]["bound_bytes"] == 2_000_000_000
    out = tfrl("cache", "info").out
    assert all(name in out and str(CACHES[name].path) in out for name in NAMES)
    assert "2 entries  measured times of operators" in out
    assert tfrl("cache", "clear", "costs", "compiles").status == 0
    after = usages(tfrl)
    assert [after[name]["entries"] for name in NAMES] == [0, 0, 0, 1, 0]
    assert after["costs"]["size_bytes"] < before["costs"]["size_bytes"]
    assert tfrl("cache", "clear").status == 0
    assert usages(tfrl)["minima"]["entries"] == 0


def test_what_other_versions_left_is_counted_and_cleared(tfrl):
    cache_directory().mkdir(parents=True)
    for name in (
        "compiles.db",
        "compiles.db-wal",
        "compiles-2.db",
        f"{COMPILES.path.name}.damaged",
    ):
        (cache_directory() / name).write_bytes(b"x")
    # Costs were files in directories.
    (cache_directory() / "costs" / "000").mkdir(parents=True)
    (cache_directory() / "costs" / "000" / "5-abc").write_bytes(bytes(5000))
    assert usages(tfrl)["compiles"]["size_bytes"] == 4 * 4096
    assert usages(tfrl)["costs"]["size_bytes"] == 2 * 4096
    assert tfrl("cache", "clear", "compiles", "costs").status == 0
    assert list(cache_directory().iterdir()) == []


def test_plugins_in_use_stay(tfrl):
    directory = PLUGINS.entry("set-1")
    ran = tfrl("cache", "clear")
    assert ran.status == 1 and directory.is_dir()
    assert ran.err == (
        "tfrl: cache: expected plugins free, found another process that uses it; clear it again "
        "when that has ended\n"
    )
