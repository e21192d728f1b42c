"""A search that a policy leads: it plays episodes; the cheapest graph that they met is found.

The first episode is played to its end. Each other one is given up where it goes nowhere: after
eight steps without a cheaper graph than it has met, or at a graph that costs more than 1.05 times
that one, the bound of TASO's backtracking. Half of them begin at the cheapest graph so far, because
an episode has an end, and large models have more to be done than fits into one; a quarter on the
way to it, because one bad step on a good way can be taken otherwise, with the others kept; and a
quarter at the model. Of graphs that cost the same the last one counts as the cheapest: many steps
change nothing but what the next ones can do.

In place of every eighth episode the policy looks around: steps from the cheapest graph are tried
one by one, until one makes a cheaper graph. A policy that is sure that a rule makes graphs dearer
hardly ever draws the few of its matches that do not; here it tries those, too, after the others.

After 48 episodes without a gain all begins anew at the model: what was found is kept, and chance
may lead elsewhere.

On a model unlike those that it learned on a policy may put what can be done in a good order, and be
far too sure of it, or be wrong. So it plays some episodes half, a quarter or an eighth as sure, and
some by chance alone: each more often, the more of its episodes made cheaper graphs (Thompson
sampling). And the player is told which steps led to cheaper graphs, to take more of their kind.
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Protocol

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
_MOST_WITHOUT_GAIN = 48

SURENESS = (1.0, 0.5, 0.25, 0.125, 0.0)
"""What a policy's logits are multiplied by in an episode; see the module."""

_LOOK_EVERY, _LOOK_AT = 8, 7
_MOST_LOOKS = 64


class Player(Protocol):
    """A policy on one model."""

    def play(
        self, number: int, start: State, *, sureness: float = 1.0
    ) -> Iterable[tuple[Step, State]]:
        """An episode.

        Args:
          number: of the episode, from 0.
          start: where it begins.
          sureness: that the logits of steps are multiplied by; with 0 all are equally likely.

        Returns:
          Its steps, each with the state after it, as they are taken.
        """

    def look(self, number: int, start: State) -> Iterable[tuple[Step, State]]:
        """Steps from one state, each with the state after it; what was looked at least comes first.

        Args:
          number: of the episode that this is done in place of.
          start: the state.
        """

    def learn(self, steps: Sequence[Step], num_good: int) -> None:
        """Is told what an episode, or each step that was looked at, came to.

        Args:
          steps: that were taken.
          num_good: how many of them, from the first on, led to a cheaper graph than all before.
        """


def follow(
    start: State,
    player: Player,
    num_rollouts: int = 64,
    budget: Budget | None = None,
    *,
    on_progress: OnProgress | None = None,
    resume_file: pathlib.Path | None = None,
) -> Result:
    """Looks for the cheapest graph where a policy goes. Each step or look is an expansion.

    Args:
      start: where the first episode begins, and every fourth one after it.
      player: plays; one step is taken for each item that is asked for.
      num_rollouts: episodes, looking around included.
      budget: as in `search`.
      on_progress: as in `search`.
      resume_file: as in `search`; the episodes are played again from the first.

    Returns:
      The best graph of all episodes, wherever in its episode it was.
    """
    record = Record("policy", start, budget or Budget(), on_progress, resume_file)
    return record.run(_follow, player=player, num_rollouts=num_rollouts)


def _follow(record: Record, player: Player, num_rollouts: int) -> None:
    generator = np.random.default_rng(0)
    cheapest, num_without_gain = record.best, 0
    ways = _Ways(generator)
    for number in range(num_rollouts):
        record.check()
        if num_without_gain >= _MOST_WITHOUT_GAIN:
            cheapest, num_without_gain = record.start, 0
        before_ms = cheapest.cost_ms
        if number % _LOOK_EVERY == _LOOK_AT:
            cheapest = _look(record, player, number, cheapest)
            has_gained = cheapest.cost_ms < before_ms
        else:
            origin = _origin(record.start, cheapest, number, generator)
            way = ways.draw() if number else 0
            cheapest = _play(record, player, number, SURENESS[way], origin, cheapest)
            has_gained = cheapest.cost_ms < before_ms
            ways.tell(way, has_gained)
        num_without_gain = 0 if has_gained else num_without_gain + 1


class _Ways:
    """Draws how sure of itself the policy is in an episode, by place in SURENESS."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        # Parameters of beta distributions of how often episodes gain: as if of each kind a few had
        # gained, or failed to, already, in favour of the policy as it is.
        self._gained = np.array([3] + [1] * (len(SURENESS) - 1))
        self._failed = np.array([1] + [3] * (len(SURENESS) - 1))

    def draw(self) -> int:
        return int(self._generator.beta(self._gained, self._failed).argmax())

    def tell(self, way: int, has_gained: bool) -> None:
        (self._gained if has_gained else self._failed)[way] += 1


def _play(
    record: Record,
    player: Player,
    number: int,
    sureness: float,
    origin: Visited,
    cheapest: Visited,
) -> Visited:
    """Plays an episode; the cheapest graph after it."""
    here, least_ms, num_without_gain = origin, origin.cost_ms, 0
    before_ms = cheapest.cost_ms
    steps, num_good = [], 0
    for step, state in player.play(number, origin.state, sureness=sureness):
        here = Visited(state, here, step)
        record.count(here)
        record.check()
        steps.append(step)
        if here.cost_ms <= cheapest.cost_ms:
            cheapest = here
            num_good = len(steps) if here.cost_ms < before_ms else 0
        num_without_gain = 0 if here.cost_ms < least_ms else num_without_gain + 1
        least_ms = min(least_ms, here.cost_ms)
        goes_nowhere = num_without_gain >= _PATIENCE or here.cost_ms > _MOST * least_ms
        # The first episode is played to its end.
        if goes_nowhere and number > 0:
            break
    player.learn(steps, num_good)
    return cheapest


def _look(record: Record, player: Player, number: int, cheapest: Visited) -> Visited:
    """Looks around; the cheapest graph after it."""
    for step, state in itertools.islice(player.look(number, cheapest.state), _MOST_LOOKS):
        seen = Visited(state, cheapest, step)
        record.count(seen)
        record.check()
        is_good = seen.cost_ms < cheapest.cost_ms
        player.learn([step], int(is_good))
        if is_good:
            return seen
    return cheapest


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
