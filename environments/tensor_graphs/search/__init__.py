"""Searches for the cheapest graph.

    result = search(engine.start(graph), "regions", Budget(seconds=60))

  removal   takes steps that only remove computations: what needs no search
  greedy    takes the step that saves most, until none saves anything
  taso      backtracks with a queue of graphs: Algorithm 1 of the thesis, the baseline
  beam      expands the cheapest few graphs of each depth
  regions   improves the graph region by region: ours, see `regions.py`
  random    takes random steps

A trained policy can lead `regions` (its argument `guide`). In `rollouts.follow` it plays alone.

All of them work on the states of an engine (`rewriting.engine.State`). A search's result depends
only on the start, the rules, the costs and the number of expansions, and is the same in every
process. How many expansions fit into a budget in seconds varies. Ctrl-C ends a search as a spent
budget does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from environments.errors import UserError
from environments.tensor_graphs.search.basic import beam, greedy, random_walk, taso
from environments.tensor_graphs.search.record import Record, replay
from environments.tensor_graphs.search.regions import regions, removal
from environments.tensor_graphs.search.results import (
    EXHAUSTED,
    INTERRUPTED,
    OUT_OF_TIME,
    Budget,
    OnProgress,
    Progress,
    Result,
    State,
    Step,
    Visited,
)
from environments.tensor_graphs.search.rollouts import follow

__all__ = [
    "EXHAUSTED",
    "INTERRUPTED",
    "METHODS",
    "OUT_OF_TIME",
    "Budget",
    "Progress",
    "Result",
    "State",
    "Step",
    "Visited",
    "follow",
    "replay",
    "search",
]

METHODS: Mapping[str, Callable[..., None]] = {
    "regions": regions,
    "removal": removal,
    "greedy": greedy,
    "taso": taso,
    "beam": beam,
    "random": random_walk,
}


def search(
    start: State,
    method: str = "regions",
    budget: Budget | None = None,
    *,
    on_progress: OnProgress | None = None,
    earlier: Progress | None = None,
    **settings: Any,
) -> Result:
    """Search by one of METHODS, whose function takes the settings.

    `on_progress` is called a few times a second. `earlier` says how far an earlier search from the
    same start has come; this one goes on from there.

    Returns:
      The cheapest graph found, also if the budget was spent or Ctrl-C was pressed.

    Raises:
      UserError: there is no such method.
    """
    if method not in METHODS:
        raise UserError(f"search: expected one of {', '.join(METHODS)}; found {method!r}")
    record = Record(method, start, budget or Budget(), on_progress, earlier)
    return record.run(METHODS[method], **settings)
