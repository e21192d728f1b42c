"""What keeping and recalling cost: compiles, and small entries when they are many.

python -m tools.benchmarks.cache_costs
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable

import numpy as np

from environments.caches.cache import Cache
from environments.caches.table import COSTS
from environments.inlining.collection.store import Trajectory, TrajectoryStore
from environments.inlining.compilers.object_size import ObjectSize

_NUM_CALL_SITES, _NUM_FEATURES = 100, 20
_COMPILES_OF_A_MODULE = 5


def main() -> int:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiles", type=int, default=500)
    parser.add_argument("--entries", type=int, default=5_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tfrl-caches-") as directory:
        found = _of_compiles(pathlib.Path(directory) / "compiles.db", options.compiles)
        found |= _of_entries(pathlib.Path(directory) / "costs.db", options.entries)
    print(json.dumps(found))
    return 0


def _of_compiles(path: pathlib.Path, num_compiles: int) -> dict[str, float]:
    generator = np.random.default_rng(0)
    names = tuple(f"feature {number}" for number in range(_NUM_FEATURES))
    compiles = [
        Trajectory(
            "module",
            names,
            generator.integers(0, 1000, (_NUM_CALL_SITES, _NUM_FEATURES)),
            generator.integers(0, 2, _NUM_CALL_SITES).astype(np.int8),
            ObjectSize(1, 1, generator.bytes(500)),
        )
        for _ in range(num_compiles)
    ]
    store = TrajectoryStore(path)

    def key(number: int) -> str:
        return f"{number // _COMPILES_OF_A_MODULE:064d}"

    def put(number: int) -> None:
        store.put(key(number), "clang", compiles[number])

    def recall(number: int) -> None:
        decisions = compiles[number].decisions
        assert store.recall(key(number), "clang", "module", lambda _, first: decisions[first:])

    numbers = range(num_compiles)
    found = {"put_compile_ms": _median_ms(put, numbers)}
    found["recall_compile_ms"] = _median_ms(recall, numbers)
    store.close()
    return found


def _of_entries(path: pathlib.Path, num_entries: int) -> dict[str, float]:
    cache = Cache(path, COSTS.bound_bytes, COSTS.version)

    def put(number: int) -> None:
        cache.put_first(str(number), b'{"ms": 1.0}')

    for number in range(num_entries):
        put(number)
    last = range(num_entries, num_entries + 1000)
    found = {"put_entry_ms": _median_ms(put, last)}
    found["get_entry_ms"] = _median_ms(lambda number: cache.get(str(number)), last)
    return found


def _median_ms(call_fn: Callable[[int], object], numbers: Iterable[int]) -> float:
    spent_ms = []
    for number in numbers:
        began_s = time.perf_counter()
        call_fn(number)
        spent_ms.append(1e3 * (time.perf_counter() - began_s))
    return round(statistics.median(spent_ms), 3)


if __name__ == "__main__":
    raise SystemExit(main())
