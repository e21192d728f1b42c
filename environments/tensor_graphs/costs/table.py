"""Measured costs, kept for the next run; what was measured first counts for all processes."""

from __future__ import annotations

import functools
import hashlib
import json
import pathlib
import platform
import re

from environments.caches.cache import Cache
from environments.caches.table import COSTS
from environments.tensor_graphs.execution.backends import Backend


class CostTable:
    """Measured costs by key, in a cache or in memory alone; each owner has costs of its own."""

    def __init__(self, cache: Cache | None = None, owner: str = "") -> None:
        self._cache = cache
        self._owner = owner
        # A cost that was used once holds until the end, whatever becomes of the cache.
        self._costs_ms: dict[str, float] = {}

    def get(self, key: str) -> float | None:
        """Return the cost in ms of a key; None if it is not known."""
        if key not in self._costs_ms and self._cache is not None:
            content = self._cache.get(f"{self._owner} {key}")
            if content is not None:
                self._costs_ms[key] = float(json.loads(content)["ms"])
        return self._costs_ms.get(key)

    def put(self, key: str, cost_ms: float, description: str = "") -> float:
        """Store a cost, and return the one that counts, since another process may have been first.

        The description is a text for people who read the file; it is cut off after 1000 characters.
        """
        if key not in self._costs_ms and self._cache is not None:
            content = json.dumps({"ms": cost_ms, "what": description[:1000]}).encode()
            content = self._cache.put_first(f"{self._owner} {key}", content)
            cost_ms = float(json.loads(content)["ms"])
        return self._costs_ms.setdefault(key, cost_ms)

    def __len__(self) -> int:
        """Return the number of costs that this process knows."""
        return len(self._costs_ms)


def table_of(backend: Backend) -> CostTable:
    """Return the table of a backend's costs on this machine, in the user's cache."""
    # The backend's name tells the number of threads.
    return CostTable(COSTS.open(), f"{backend.name} {backend.version} {processor()}")


@functools.cache
def processor() -> str:
    """Return the model of this machine's processor, with a hash of its features."""
    flags = _said_of_processor("flags")
    # Two virtual machines may report the same processor, but support different instructions.
    features = hashlib.sha256(flags.encode()).hexdigest()[:6] if flags else ""
    return f"{processor_model()} {features}".strip()


def processor_model() -> str:
    """Return the model of this machine's processor, as it calls itself."""
    return _said_of_processor("model name") or platform.processor() or platform.machine()


def _said_of_processor(field: str) -> str:
    """Return what Linux says of the first processor; "" elsewhere."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return ""
    line = re.search(rf"^{field}\s*:\s*(.+)$", text, re.MULTILINE)
    return line[1].strip() if line else ""
