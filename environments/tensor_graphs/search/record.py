"""Keeps the books of a search: budget, best states, progress, the file to resume from."""

from __future__ import annotations

import heapq
import json
import os
import pathlib
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from environments.errors import UserError
from environments.tensor_graphs.search.results import (
    EXHAUSTED,
    INTERRUPTED,
    OUT_OF_EXPANSIONS,
    OUT_OF_TIME,
    Budget,
    OnProgress,
    Progress,
    Result,
    State,
    Step,
    Visited,
    match_of,
    step_of,
)

_NUM_CANDIDATES = 8
_TELL_EVERY_S = 0.2
_SAVE_EVERY_S = 5.0
_VERSION = 1


class BudgetSpent(Exception):
    """A search has to end; the message says why."""


class Record:
    """What a search has done. All methods apply rules by `expand`, so that all count alike.

    Attributes:
      best: the cheapest state so far.
      expansions: so far.
    """

    def __init__(
        self,
        method: str,
        start: State,
        budget: Budget,
        on_progress: OnProgress | None = None,
        file: pathlib.Path | None = None,
    ) -> None:
        """Begins at `start`, or where `file` says that a search of it had come to."""
        self.method = method
        self.start = Visited(start)
        self.best = self.start
        self.expansions = 0
        self.seen: set[Hashable] = set()
        self._budget = budget
        self._on_progress = on_progress
        self._file = file
        self._began_s = self._told_s = time.monotonic()
        self._saved_s = 0.0
        self._expansions_of_best = 0
        self._candidates: list[tuple[float, int, Visited]] = []
        if file is not None and file.exists():
            self._resume(file)
        self._keep(self.best)

    @property
    def seconds(self) -> float:
        """Wall time so far."""
        return time.monotonic() - self._began_s

    def run(self, method: Callable[..., None], **settings: Any) -> Result:
        """Has a method search until it is at its end, the budget is spent, or Ctrl-C is pressed.

        Args:
          method: takes this record, and `settings`.
          **settings: of the method.
        """
        try:
            method(self, **settings)
            stopped = EXHAUSTED
        except BudgetSpent as spent:
            stopped = str(spent)
        except KeyboardInterrupt:
            stopped = INTERRUPTED
        self.tell()
        return self.result(stopped)

    def expand(self, origin: Visited, match: Any, *, count: bool = True) -> Visited:
        """Applies a match.

        Args:
          origin: where.
          match: one of the state's.
          count: False where the caller counts, with `count`, once it knows the result to be new.

        Raises:
          BudgetSpent: before anything is applied.
        """
        self.check()
        found = Visited(origin.state.apply(match), origin, step_of(match))
        if count:
            self.count(found)
        return found

    def count(self, found: Visited) -> None:
        """Counts an application whose result was new."""
        self.expansions += 1
        if found.cost_ms < self.best.cost_ms:
            self.best = found
            self._expansions_of_best = self.expansions
        self._keep(found)

    def is_new(self, state: State) -> bool:
        """Whether no equal graph has been asked about yet."""
        key = hash(state.graph)
        if key in self.seen:
            return False
        self.seen.add(key)
        return True

    def check(self) -> None:
        """Ends the search where its budget is spent; tells and saves how far it has come.

        Raises:
          BudgetSpent: it is.
        """
        now_s = time.monotonic()
        if self.expansions >= self._budget.expansions:
            raise BudgetSpent(OUT_OF_EXPANSIONS)
        if now_s - self._began_s >= self._budget.seconds:
            raise BudgetSpent(OUT_OF_TIME)
        if self._on_progress is not None and now_s - self._told_s >= _TELL_EVERY_S:
            self._told_s = now_s
            self.tell()
        if self._file is not None and now_s - self._saved_s >= _SAVE_EVERY_S:
            self._saved_s = now_s
            self.save()

    def tell(self) -> None:
        """Calls the progress callback."""
        if self._on_progress is not None:
            self._on_progress(Progress(self.expansions, self.seconds, self.best.cost_ms))

    def save(self) -> None:
        """Writes the way to the best state to the file, if there is one, at once or not at all."""
        if self._file is None:
            return
        written = {
            "version": _VERSION,
            "method": self.method,
            "start": f"{_hash_of(self.start.state):016x}",
            "start_cost_ms": self.start.cost_ms,
            "best_cost_ms": self.best.cost_ms,
            "expansions": self.expansions,
            "path": [{"xfer": xfer, "location": list(where)} for xfer, where in self.best.path],
        }
        self._file.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_name(f"{self._file.name}.{os.getpid()}.partial")
        partial.write_text(json.dumps(written, indent=1))
        partial.replace(self._file)

    def result(self, stopped: str) -> Result:
        """What was found."""
        self.save()
        candidates: dict[float, Visited] = {self.best.cost_ms: self.best}
        for _, _, found in sorted(self._candidates, key=lambda one: (-one[0], -one[1])):
            candidates.setdefault(found.cost_ms, found)
        return Result(
            method=self.method,
            best=self.best.state,
            path=self.best.path,
            candidates=tuple(candidates.values()),
            start_cost_ms=self.start.cost_ms,
            expansions=self.expansions,
            seconds=self.seconds,
            stopped=stopped,
            expansions_of_best=self._expansions_of_best,
        )

    def _keep(self, found: Visited) -> None:
        """Remembers the cheapest states; of those that cost the same the first."""
        if found.cost_ms >= self.start.cost_ms:
            return
        if any(cost == -found.cost_ms for cost, _, _ in self._candidates):
            return
        # A heap whose first is the dearest; the counter breaks ties, states are never compared.
        entry = (-found.cost_ms, -self.expansions, found)
        if len(self._candidates) < _NUM_CANDIDATES:
            heapq.heappush(self._candidates, entry)
        elif entry[0] > self._candidates[0][0]:
            heapq.heapreplace(self._candidates, entry)

    def _resume(self, file: pathlib.Path) -> None:
        try:
            written = json.loads(file.read_text())
            version, start = written["version"], written["start"]
            expansions = int(written["expansions"])
            path = [Step(one["xfer"], tuple(one["location"])) for one in written["path"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{file}: expected a search to resume, found something else "
                f"({type(error).__name__}); delete it to begin anew"
            ) from None
        expected = f"{_hash_of(self.start.state):016x}"
        if version != _VERSION or start != expected:
            raise UserError(
                f"{file}: expected a search of this model ({expected}), found one of another "
                f"({start}); delete it to begin anew"
            )
        try:
            self.best = replay(self.start, path)
        except LookupError as error:
            raise UserError(
                f"{file}: expected steps that apply here, found {error}; it was written with "
                "other rules: delete it to begin anew"
            ) from None
        self.expansions = self._expansions_of_best = expansions


def replay(start: Visited, path: Sequence[Step]) -> Visited:
    """Goes a way again.

    Raises:
      LookupError: a step that does not apply.
    """
    found = start
    for step in path:
        found = Visited(found.state.apply(match_of(found.state, step)), found, step)
    return found


def _hash_of(state: State) -> int:
    return hash(state.graph) & (1 << 64) - 1
