"""Costs are kept, and the first one counts."""

from __future__ import annotations

import pathlib

import pytest

from environments.caches import cache as caches
from environments.caches.cache import Cache
from environments.caches.table import COSTS
from environments.tensor_graphs.costs.table import CostTable, processor, table_of
from environments.tensor_graphs.execution.backends import OnnxRuntime


def test_table(tmp_path: pathlib.Path) -> None:
    cache = Cache(tmp_path / "costs.db", 1_000_000, 1)
    first, second = CostTable(cache), CostTable(cache)
    assert first.get("a") is None
    assert first.put("a", 1.0) == 1.0
    # The other process was slower: the first value holds for both.
    assert second.put("a", 2.0) == 1.0
    assert second.get("a") == 1.0
    # Another backend or processor has costs of its own.
    assert CostTable(cache, "another").get("a") is None
    # A run goes by the cost that it has seen, although the cache is cleared and filled anew.
    assert caches.clear(tmp_path / "costs.db")
    assert CostTable(cache).put("a", 3.0) == 3.0
    assert first.get("a") == second.put("a", 4.0) == 1.0
    assert CostTable(cache).get("a") == 3.0


def test_table_of_a_machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert processor()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    table_of(OnnxRuntime()).put("a", 1.0)
    assert table_of(OnnxRuntime()).get("a") == 1.0
    assert table_of(OnnxRuntime("basic")).get("a") is None
    assert table_of(OnnxRuntime(threads=2)).get("a") is None
    assert COSTS.path.is_file()
