"""How often a function was evaluated."""

from __future__ import annotations

import threading
from typing import Any


class Evaluations:
    """Counts evaluations of a function in this process, by any number of threads.

    A copy that is sent to another process begins at 0.

    Attributes:
      count: evaluations so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        """Count some more."""
        with self._lock:
            self.count += number

    def __reduce__(self) -> tuple[type[Evaluations], tuple[Any, ...]]:
        """Leave the count and the lock at home."""
        return Evaluations, ()
