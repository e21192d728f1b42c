"""A search that a policy leads: it plays episodes; the cheapest graph that they met is found.

Every second episode begins at the cheapest graph so far. An episode has an end, and large models
have more to be done than fits into one; and what is left to be done is easier to see there.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable

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
    for number in range(num_rollouts):
        here = record.best if number % 2 else record.start
        record.check()
        for step, state in play_fn(number, here.state):
            here = Visited(state, here, step)
            record.count(here)
            record.check()
