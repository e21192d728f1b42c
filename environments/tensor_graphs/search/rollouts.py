"""A search that a policy leads: it plays episodes; the cheapest graph that they met is found.

The first episode is played to its end. Each other one is given up where it goes nowhere: after
eight steps without a cheaper graph than it has met, or at a graph that costs more than 1.05 times
that one, the bound of TASO's backtracking. Half of them begin at the cheapest graph so far, because
an episode has an end, and large models have more to be done than fits into one; a quarter on the
way to it, because one bad step on a good way can be taken otherwise, with the others kept; and a
quarter at the model. Of graphs that cost the same the last one counts as the cheapest: many steps
change nothing but what the next ones can do.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable

import numpy as np

from environments.tensor_graphs.search.record import Record
from environments.tensor_graphs.search.results import (
    Budget,
    OnProgress,
    Result,
    State,
    Step,
    Visited,
)

_PATIENCE = 8
_MOST = 1.05

PlayFn = Callable[[int, State], Iterable[tuple[Step, State]]]
"""(number of an episode, from 0, and where it begins) -> its steps, each with the state after it,
as they are taken."""


def follow(
    start: State,
    play_fn: PlayFn,
    num_rollouts: int = 64,
    budget: Budget | None = None,
    *,
    on_progress: OnProgress | None = None,
    resume_file: pathlib.Path | None = None,
) -> Result:
    """Looks for the cheapest graph where a policy goes. Each of its steps is an expansion.

    Args:
      start: where the first episode begins, and every fourth one after it.
      play_fn: plays an episode; one step is taken for each item that is asked for.
      num_rollouts: episodes.
      budget: as in `search`.
      on_progress: as in `search`.
      resume_file: as in `search`; the episodes are played again from the first.

    Returns:
      The best graph of all episodes, wherever in its episode it was.
    """
    record = Record("policy", start, budget or Budget(), on_progress, resume_file)
    return record.run(_play, play_fn=play_fn, num_rollouts=num_rollouts)


def _play(record: Record, play_fn: PlayFn, num_rollouts: int) -> None:
    generator = np.random.default_rng(0)
    cheapest = record.best
    for number in range(num_rollouts):
        here = _origin(record.start, cheapest, number, generator)
        least_ms, num_without_gain = here.cost_ms, 0
        record.check()
        for step, state in play_fn(number, here.state):
            here = Visited(state, here, step)
            record.count(here)
            record.check()
            if here.cost_ms <= cheapest.cost_ms:
                cheapest = here
            num_without_gain = 0 if here.cost_ms < least_ms else num_without_gain + 1
            least_ms = min(least_ms, here.cost_ms)
            goes_nowhere = num_without_gain >= _PATIENCE or here.cost_ms > _MOST * least_ms
            if number and goes_nowhere:
                break


def _origin(
    start: Visited, cheapest: Visited, number: int, generator: np.random.Generator
) -> Visited:
    """Where an episode begins."""
    if number % 4 == 0:
        return start
    if number % 4 == 2:
        way = cheapest.trail
        return way[generator.integers(len(way))]
    return cheapest
