"""Searches for the cheapest graph.

    result = search(engine.start(graph), "regions", Budget(seconds=60))

  greedy    the step that saves most, until none saves anything
  taso      backtracking with a queue of graphs: Algorithm 1 of the thesis, the baseline
  beam      the cheapest few graphs of each depth
  regions   ours, see `regions.py`
  random    random steps

A policy that has learned leads a search of its own, `rollouts.follow`.

All work on any object with `graph`, `matches`, `cost_ms` and `apply` (`results.State`). For one
start, rules, costs and number of expansions a search's result is the same in every process; what a
budget in seconds allows is not. Ctrl-C ends a search as an empty budget does.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from environments.errors import UserError
from environments.tensor_graphs.search.basic import beam, greedy, random_walk, taso
from environments.tensor_graphs.search.record import Record, replay
from environments.tensor_graphs.search.regions import regions
from environments.tensor_graphs.search.results import (
    EXHAUSTED,
    INTERRUPTED,
    Budget,
    OnProgress,
    Progress,
    Result,
    State,
    Step,
    Visited,
)
from environments.tensor_graphs.search.rollouts import Player, follow

__all__ = [
    "EXHAUSTED",
    "INTERRUPTED",
    "METHODS",
    "Budget",
    "Player",
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
    resume_file: pathlib.Path | None = None,
    **settings: Any,
) -> Result:
    """Looks for the cheapest graph.

    Args:
      start: where to begin.
      method: one of METHODS.
      budget: when to end at the latest; never, where it is not given.
      on_progress: called a few times a second.
      resume_file: where the way to the best graph is kept, so that another search goes on from
        there if this one is killed.
      **settings: of the method: the arguments of its function.

    Returns:
      The best graph, also where the budget was spent or Ctrl-C pressed.

    Raises:
      UserError: there is no such method, or `resume_file` holds something else.
    """
    if method not in METHODS:
        raise UserError(f"search: expected one of {', '.join(METHODS)}; found {method!r}")
    record = Record(method, start, budget or Budget(), on_progress, resume_file)
    return record.run(METHODS[method], **settings)
