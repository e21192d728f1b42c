"""Measured costs on disk: one file for each machine, backend and version, a line for each cost.

Lines are added at the end, each by one write: several processes can do so at once, and one that is
killed spoils nothing. What is not a line of ours is passed over; of two that say the same the first
one holds, so that all who read the file agree.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
import platform
import re

from environments.caches import cache_directory
from environments.errors import UserError
from environments.tensor_graphs.execution.backends import Backend

# Costs of another way of measuring are not comparable.
_METHOD = 5


class CostTable:
    """Costs by key.

    Attributes:
      path: of the file; None for a table that is kept in memory only.
    """

    def __init__(self, path: pathlib.Path | None = None) -> None:
        """Reads what is there.

        Raises:
          UserError: the file cannot be read.
        """
        self.path = path
        self._costs_ms: dict[str, float] = {}
        self._read_bytes = 0
        self._refresh()

    def get(self, key: str) -> float | None:
        """A cost that is known."""
        if key not in self._costs_ms:
            self._refresh()
        return self._costs_ms.get(key)

    def put(self, key: str, cost_ms: float, description: str = "") -> float:
        """Remembers a cost, and returns the one that holds: another process may have been first.

        Args:
          key: of up to 32 characters.
          cost_ms: to be found under it.
          description: for people who read the file.

        Raises:
          UserError: the file cannot be written.
        """
        if self.path is None:
            return self._costs_ms.setdefault(key, cost_ms)
        line = json.dumps({"key": key, "ms": cost_ms, "what": description[:1000]}) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)
        except OSError as error:
            raise UserError(f"cannot write measured costs: {error}") from error
        self._refresh()
        return self._costs_ms.setdefault(key, cost_ms)

    def __len__(self) -> int:
        return len(self._costs_ms)

    def _refresh(self) -> None:
        """Reads what has been added since."""
        if self.path is None:
            return
        try:
            with self.path.open("rb") as file:
                file.seek(self._read_bytes)
                text = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            raise UserError(f"cannot read measured costs: {error}") from error
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            try:
                entry = json.loads(line)
                self._costs_ms.setdefault(str(entry["key"]), float(entry["ms"]))
            except (ValueError, KeyError, TypeError):
                continue


def default_directory() -> pathlib.Path:
    """Return the directory of all tables in the user's cache."""
    return cache_directory() / "costs"


def table_of(backend: Backend, directory: pathlib.Path | None = None) -> CostTable:
    """The table of a backend on this machine.

    Args:
      backend: that costs are measured on.
      directory: of all tables; `default_directory` if not given.
    """
    machine = processor()
    digest = hashlib.sha256(f"{machine} {_METHOD}".encode()).hexdigest()[:8]
    readable = re.sub(r"[^A-Za-z0-9]+", "-", machine).strip("-").lower()[:40]
    name = f"{backend.name}-{backend.version}-{readable}-{digest}.jsonl"
    return CostTable((directory or default_directory()) / name)


@functools.cache
def processor() -> str:
    """The model of this machine's processor."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", text, re.MULTILINE)
    # Virtual machines of one name may differ in what they can do.
    features = hashlib.sha256(flags[1].encode()).hexdigest()[:6] if flags else ""
    return f"{found[1] if found else platform.processor() or platform.machine()} {features}".strip()
