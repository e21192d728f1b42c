"""A search that a policy leads: it plays episodes; the cheapest graph that they met is found.

Every second episode begins where others have been: in turns at the cheapest graph so far and at any
graph on the way to it. An episode has an end, and large models have more to be done than fits into
one; and one bad step on a good way can be taken otherwise, with the others kept.
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

PlayFn = Callable[[int, State], Iterable[tuple[Step, State]]]
"""(number of an episode, from 0, and where it begins) -> its steps, each with the state after it,
as they are taken."""


def follow(
    start: State,
    play_fn: PlayFn,
    num_rollouts: int = 16,
    budget: Budget | None = None,
    *,
    on_progress: OnProgress | None = None,
    resume_file: pathlib.Path | None = None,
) -> Result:
    """Looks for the cheapest graph where a policy goes. Each of its steps is an expansion.

    Args:
      start: where the first episode begins, and every second one after it.
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
    for number in range(num_rollouts):
        here = _origin(record, number, generator)
        record.check()
        for step, state in play_fn(number, here.state):
            here = Visited(state, here, step)
            record.count(here)
            record.check()


def _origin(record: Record, number: int, generator: np.random.Generator) -> Visited:
    """Where an episode begins."""
    if number % 2 == 0:
        return record.start
    way = record.best.trail
    return way[-1] if number % 4 == 1 else way[generator.integers(len(way))]
