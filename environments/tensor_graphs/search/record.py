"""The record of a search: its budget, best states and progress."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from typing import Any

from environments.tensor_graphs.rewriting.engine import State
from environments.tensor_graphs.rewriting.matching import Match
from environments.tensor_graphs.search.results import (
    EXHAUSTED,
    INTERRUPTED,
    OUT_OF_EXPANSIONS,
    OUT_OF_PATIENCE,
    OUT_OF_TIME,
    Budget,
    OnProgress,
    Progress,
    Result,
    Step,
    Visited,
    step_of,
)

_NUM_CANDIDATES = 8
_REPORT_EVERY_S = 0.2


class BudgetSpent(Exception):
    """A search must end because its budget is spent; the message says which part of it."""


class Record:
    """What a search has found so far, and what it has spent.

    All searches apply rules by `expand`, so that all count expansions alike.
    """

    def __init__(
        self,
        method: str,
        start: State,
        budget: Budget,
        on_progress: OnProgress | None = None,
        earlier: Progress | None = None,
    ) -> None:
        """Begin at `start`, or go on from where an earlier search from there has come."""
        self._method = method
        self.start = Visited(start)
        self.best = earlier.best if earlier else self.start
        self.expansions = self._expansions_of_best = earlier.expansions if earlier else 0
        # Hashes of the graphs that `is_new` was asked about.
        self._seen: set[int] = set()
        self._budget = budget
        self._on_progress = on_progress
        self._began_s = self._reported_s = time.monotonic()
        self._candidates: list[tuple[float, int, Visited]] = []
        self._keep(self.best)

    def run(self, method: Callable[..., None], **settings: Any) -> Result:
        """Call a search; it ends by itself, when the budget is spent, or by Ctrl-C."""
        try:
            method(self, **settings)
            stopped = EXHAUSTED
        except BudgetSpent as spent:
            stopped = str(spent)
        except KeyboardInterrupt:
            stopped = INTERRUPTED
        self._report()
        return self._result(stopped)

    def expand(self, origin: Visited, match: Match, *, count: bool = True) -> Visited:
        """Apply a match to a state that has it, and count this as an expansion.

        Without `count` the caller calls that once it knows that the result is new.

        Raises:
          BudgetSpent: the budget is spent; nothing was applied.
        """
        self.check()
        child = Visited(origin.state.apply(match), origin, match)
        if count:
            self.count(child)
        return child

    def count(self, visited: Visited) -> None:
        """Count an expansion, and remember its result if it is among the cheapest."""
        self.expansions += 1
        if visited.cost_ms < self.best.cost_ms:
            self.best = visited
            self._expansions_of_best = self.expansions
        self._keep(visited)

    def is_new(self, state: State) -> bool:
        """Whether a state's graph is new; it is not when this is asked again."""
        key = hash(state.graph)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def check(self) -> None:
        """End the search if its budget is spent; else report its progress now and then.

        Raises:
          BudgetSpent: the budget is spent.
        """
        now_s = time.monotonic()
        if self.expansions >= self._budget.expansions:
            raise BudgetSpent(OUT_OF_EXPANSIONS)
        if now_s - self._began_s >= self._budget.seconds:
            raise BudgetSpent(OUT_OF_TIME)
        if now_s - self._began_s >= self._budget.patience_s and self.best is self.start:
            raise BudgetSpent(OUT_OF_PATIENCE)
        if now_s - self._reported_s >= _REPORT_EVERY_S:
            self._reported_s = now_s
            self._report()

    def _report(self) -> None:
        if self._on_progress is not None:
            seconds = time.monotonic() - self._began_s
            self._on_progress(Progress(self.expansions, seconds, self.best))

    def _result(self, stopped: str) -> Result:
        candidates: dict[float, Visited] = {self.best.cost_ms: self.best}
        for _, _, visited in sorted(self._candidates, key=lambda entry: (-entry[0], -entry[1])):
            candidates.setdefault(visited.cost_ms, visited)
        return Result(
            method=self._method,
            best=self.best.state,
            path=self.best.path,
            candidates=tuple(candidates.values()),
            start_cost_ms=self.start.cost_ms,
            expansions=self.expansions,
            seconds=time.monotonic() - self._began_s,
            stopped=stopped,
            expansions_of_best=self._expansions_of_best,
        )

    def _keep(self, visited: Visited) -> None:
        """Remember a state if it is among the cheapest; of equally cheap ones the first is kept."""
        if visited.cost_ms >= self.start.cost_ms:
            return
        if any(cost == -visited.cost_ms for cost, _, _ in self._candidates):
            return
        # The heap's first entry is the dearest. The counter breaks ties: states are not comparable.
        entry = (-visited.cost_ms, -self.expansions, visited)
        if len(self._candidates) < _NUM_CANDIDATES:
            heapq.heappush(self._candidates, entry)
        elif entry[0] > self._candidates[0][0]:
            heapq.heapreplace(self._candidates, entry)


def replay(start: Visited, path: Sequence[Match | Step]) -> Visited:
    """Apply the steps of a path again; return the state where it ends.

    The path may consist of matches of another engine: each is looked up by its rule and location.

    Raises:
      LookupError: a step does not apply.
    """
    here = start
    for step in path:
        wanted = step_of(step)
        matches = (match for match in here.state.matches if step_of(match) == wanted)
        if (match := next(matches, None)) is None:
            raise LookupError(f"no match of {step.rule} at {step.location}")
        here = Visited(here.state.apply(match), here, match)
    return here
