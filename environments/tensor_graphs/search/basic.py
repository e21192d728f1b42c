"""Searches known from the literature: greedy, TASO's backtracking, beam, random.

Each begins at the best state of its record, and the record keeps what it finds.
"""

from __future__ import annotations

import heapq
import random

from environments.tensor_graphs.rewriting.matching import Match
from environments.tensor_graphs.search.record import Record
from environments.tensor_graphs.search.results import Visited

_ALPHA = 1.05
_BEAM_WIDTH, _BEAM_PATIENCE = 8, 4
_NUM_WALKS, _NUM_STEPS = 10, 50


def greedy(record: Record) -> None:
    """Take the step that saves most until none saves anything."""
    here = record.best
    while True:
        cheapest = here
        for match in here.state.matches:
            child = record.expand(here, match)
            if child.cost_ms <= cheapest.cost_ms and _order(child) < _order(cheapest):
                cheapest = child
        if cheapest.cost_ms >= here.cost_ms:
            return
        here = cheapest


def taso(record: Record) -> None:
    """Search by cost-based backtracking: Algorithm 1 of the thesis (2.1.1), as TASO implements it.

    TASO's implementation adds two things to the printed algorithm. It skips graphs that it has
    seen before (by their hashes), without which the queue would never become empty. It drops graphs
    with more than twice the nodes of the first one. (It also ends after 1,000 graphs; here only the
    budget ends the search.) The printed S_i(G) is one graph; here, as in TASO, a rule makes one at
    each place where it matches.
    """
    start = record.best
    max_nodes = 2 * len(start.state.graph.nodes)
    record.is_new(start.state)
    # The queue holds (parent, match) in place of states: states are large, and few are dequeued.
    queue: list[tuple[float, int, Visited, Match | None]] = [(start.cost_ms, 0, start, None)]
    while queue:
        _, _, here, match = heapq.heappop(queue)
        if match is not None:
            here = Visited(here.state.apply(match), here, match)
        for match in here.state.matches:
            child = record.expand(here, match, count=False)
            if len(child.state.graph.nodes) > max_nodes or not record.is_new(child.state):
                continue
            record.count(child)
            if child.cost_ms < _ALPHA * record.best.cost_ms:
                heapq.heappush(queue, (*_order(child), here, match))


def beam(record: Record) -> None:
    """Expand the cheapest few graphs of each depth, until some depths make none cheaper."""
    record.is_new(record.best.state)
    level, without_gain = [record.best], 0
    while level and without_gain < _BEAM_PATIENCE:
        best_ms = record.best.cost_ms
        children = []
        for here in level:
            for match in here.state.matches:
                child = record.expand(here, match, count=False)
                if record.is_new(child.state):
                    record.count(child)
                    children.append(child)
        level = heapq.nsmallest(_BEAM_WIDTH, children, key=_order)
        without_gain = 0 if record.best.cost_ms < best_ms else without_gain + 1


def random_walk(record: Record, seed: int = 0) -> None:
    """Take random steps, some times: the baseline that any other search has to beat."""
    generator = random.Random(seed)
    start = record.best
    for _ in range(_NUM_WALKS):
        here = start
        for _ in range(_NUM_STEPS):
            if not here.state.matches:
                break
            here = record.expand(here, generator.choice(here.state.matches))


def _order(visited: Visited) -> tuple[float, int]:
    """Return a key that sorts by cost; ties are broken alike in every process."""
    return visited.cost_ms, hash(visited.state.graph)
