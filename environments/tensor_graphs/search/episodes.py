"""Episodes that searches let a policy play."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.rewriting.engine import State
from environments.tensor_graphs.rewriting.matching import Match
from environments.tensor_graphs.search.record import Record
from environments.tensor_graphs.search.results import Visited

_PATIENCE, _NODES_PER_PATIENCE = 20, 6
_MAX_COST_RATIO = 1.05


Played = Iterable[tuple[Match, State]]
"""Matches, each with the state after it, applied one by one as they are asked for."""


class Guide(Protocol):
    """What plays episodes on one model, such as a learned policy."""

    def play(self, number: int, start: State) -> Played:
        """Play episode `number` from a state.

        Episode 0 consists of the likeliest steps, and is the same whenever it begins at the same
        state; the others are drawn at random.
        """


class Hope:
    """Tells when an episode is hopeless.

    It is after `patience` steps without a graph cheaper than its cheapest, or at a graph that costs
    more than `_MAX_COST_RATIO` times that one, the bound of TASO's backtracking.
    """

    def __init__(self, start: Visited, patience: int) -> None:
        self._patience = patience
        self._least_ms, self._num_without_gain = start.cost_ms, 0

    def is_lost(self, here: Visited) -> bool:
        """Whether the episode is hopeless after a step to this state; call it after each step."""
        if here.cost_ms < self._least_ms:
            self._least_ms, self._num_without_gain = here.cost_ms, 0
        else:
            self._num_without_gain += 1
        is_dear = here.cost_ms > _MAX_COST_RATIO * self._least_ms
        return self._num_without_gain >= self._patience or is_dear


def patience_with(graph: Graph, least: int = _PATIENCE) -> int:
    """Return the steps without a gain after which likeliest steps on a graph are hopeless.

    A guide that has learned to prepare a saving in all layers needs more patience than one that
    tries steps at random: more for larger graphs, and at least `least` steps.
    """
    return max(least, len(graph.nodes) // _NODES_PER_PATIENCE)


def likeliest(
    record: Record, guide: Guide, start: Visited, patience: int
) -> Iterator[tuple[Visited, Visited]]:
    """Let a guide play its likeliest steps until they are hopeless; each counts as an expansion.

    An episode that ends before that goes on in another one, from the cheapest graph so far, if it
    has made a cheaper graph.

    Yields:
      For each step the state before it and the state after it.

    Raises:
      BudgetSpent: the budget is spent.
    """
    cheapest, origin = start, None
    # Episode 0 is the same whenever it begins at the same state, so it is not played there again.
    while origin is not cheapest:
        before = origin = cheapest
        hope = Hope(origin, patience)
        for match, state in guide.play(0, origin.state):
            after = Visited(state, before, match)
            record.count(after)
            record.check()
            yield before, after
            cheapest = min(cheapest, after, key=lambda visited: visited.cost_ms)
            if hope.is_lost(after):
                return
            before = after
