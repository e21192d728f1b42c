"""Searches that others have: greedy, TASO's backtracking, beam, random."""

from __future__ import annotations

import heapq
import random
from typing import Any

from environments.tensor_graphs.search.record import Record
from environments.tensor_graphs.search.results import State, Visited, step_of


def greedy(record: Record) -> None:
    """Takes the step that saves most until none saves anything."""
    here = record.best
    while True:
        cheapest = here
        for match in here.state.matches:
            found = record.expand(here, match)
            if comes_before(found, cheapest):
                cheapest = found
        if cheapest.cost_ms >= here.cost_ms:
            return
        here = cheapest


def taso(record: Record, alpha: float = 1.05, max_dequeued: int | None = None) -> None:
    """Cost-based backtracking search: Algorithm 1 of the thesis (2.1.1), as TASO does it.

    TASO adds to the algorithm as it is printed: graphs that it has met are not met again (a set of
    hashes), graphs of more than twice the nodes that it began with are dropped, and after so many
    graphs (`budget`) it ends.

    Args:
      record: where it begins.
      alpha: a graph may cost so many times the best one's cost to be gone on with.
      max_dequeued: TASO's budget, graphs taken from the queue; TASO's default is 1,000.
    """
    start = record.best
    max_nodes = 2 * _num_nodes(start.state)
    record.is_new(start.state)
    # What waits is kept as (where from, match): states are large, and few are ever taken out.
    queue: list[tuple[float, int, Visited, Any]] = [(start.cost_ms, 0, start, None)]
    dequeued = 0
    while queue and (max_dequeued is None or dequeued < max_dequeued):
        _, _, here, match = heapq.heappop(queue)
        dequeued += 1
        if match is not None:
            here = Visited(here.state.apply(match), here, step_of(match))
        for match in here.state.matches:
            found = record.expand(here, match, count=False)
            if _num_nodes(found.state) > max_nodes or not record.is_new(found.state):
                continue
            record.count(found)
            if found.cost_ms < alpha * record.best.cost_ms:
                entry = (found.cost_ms, hash(found.state.graph), here, match)
                heapq.heappush(queue, entry)


def beam(record: Record, width: int = 8, patience: int = 4) -> None:
    """Goes on with the cheapest few graphs of each depth.

    Args:
      record: where it begins.
      width: how many.
      patience: so many depths without a better graph end it.
    """
    record.is_new(record.best.state)
    level, without_gain = [record.best], 0
    while level and without_gain < patience:
        best_ms = record.best.cost_ms
        made = []
        for here in level:
            for match in here.state.matches:
                found = record.expand(here, match, count=False)
                if record.is_new(found.state):
                    record.count(found)
                    made.append(found)
        level = heapq.nsmallest(width, made, key=_order)
        without_gain = 0 if record.best.cost_ms < best_ms else without_gain + 1


def random_walk(record: Record, seed: int = 0, num_steps: int = 50, num_walks: int = 10) -> None:
    """Random steps, some walks of them: what any other search has to beat."""
    generator = random.Random(seed)
    start = record.best
    for _ in range(num_walks):
        here = start
        for _ in range(num_steps):
            if not here.state.matches:
                break
            here = record.expand(here, generator.choice(here.state.matches))


def comes_before(one: Visited, other: Visited) -> bool:
    """By cost; what costs the same by its structure, which is the same in every process."""
    if one.cost_ms != other.cost_ms:
        return one.cost_ms < other.cost_ms
    return hash(one.state.graph) < hash(other.state.graph)


def _order(found: Visited) -> tuple[float, int]:
    return found.cost_ms, hash(found.state.graph)


def _num_nodes(state: State) -> int:
    return len(getattr(state.graph, "nodes", ()))
