"""Keep measured costs on disk: one file per machine, backend and version, one line per cost.

Each line is appended by a single write. Therefore several processes can share a file, and a process
that is killed does not damage it. Readers skip lines that they do not understand. If two lines have
the same key the first one counts, so that all readers agree.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
import platform
import re

from environments.errors import UserError
from environments.machine import cache_directory
from environments.tensor_graphs.execution.backends import Backend

# Version of the way of measuring. Costs of different versions are not comparable, so each version
# has files of its own.
_METHOD = 5


class CostTable:
    """A table of measured costs by key.

    Attributes:
      path: path of the file; None for a table that is kept in memory only.
    """

    def __init__(self, path: pathlib.Path | None = None) -> None:
        """Read the file if it exists.

        Raises:
          UserError: the file cannot be read.
        """
        self.path = path
        self._costs_ms: dict[str, float] = {}
        self._read_bytes = 0
        self._refresh()

    def get(self, key: str) -> float | None:
        """Return the cost in ms of a key; None if it is not known.

        Raises:
          UserError: the file cannot be read.
        """
        if key not in self._costs_ms:
            self._refresh()
        return self._costs_ms.get(key)

    def put(self, key: str, cost_ms: float, description: str = "") -> float:
        """Store a cost, and return the one that counts, since another process may have been first.

        Args:
          key: the key, of up to 32 characters.
          cost_ms: the cost to store under it.
          description: a text for people who read the file; cut off after 1000 characters.

        Raises:
          UserError: the file cannot be written or read.
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
        """Read the lines that have been added to the file since the last time."""
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
    """Return the table of a backend's costs on this machine.

    Args:
      backend: the backend that costs are measured on.
      directory: where all tables are kept; `default_directory` if not given.

    Raises:
      UserError: the file cannot be read.
    """
    machine = processor()
    digest = hashlib.sha256(f"{machine} {_METHOD}".encode()).hexdigest()[:8]
    readable = re.sub(r"[^A-Za-z0-9]+", "-", machine).strip("-").lower()[:40]
    name = f"{backend.name}-{backend.version}-{readable}-{digest}.jsonl"
    return CostTable((directory or default_directory()) / name)


@functools.cache
def processor() -> str:
    """Return the model of this machine's processor, with a hash of its features."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", text, re.MULTILINE)
    # Two virtual machines may report the same processor, but support different instructions.
    features = hashlib.sha256(flags[1].encode()).hexdigest()[:6] if flags else ""
    return f"{found[1] if found else platform.processor() or platform.machine()} {features}".strip()
