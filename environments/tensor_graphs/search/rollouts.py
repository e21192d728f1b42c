"""A search that a policy leads: it plays episodes; the cheapest graph that they met is found.

The first episode is played to its end. Each other one is given up where it goes nowhere: after
eight steps without a cheaper graph than it has met, or at a graph that costs more than 1.05 times
that one, the bound of TASO's backtracking. Half of them begin at the cheapest graph so far, because
an episode has an end, and large models have more to be done than fits into one; a quarter on the
way to it, because one bad step on a good way can be taken otherwise, with the others kept; and a
quarter at the model. Of graphs that cost the same the last one counts as the cheapest, unless the
way leads back to it: many steps change nothing but what the next ones can do.

In place of every eighth episode the policy looks around: steps from the cheapest graph are tried
one by one, until one makes a cheaper graph; of places that look alike one. A policy that is sure
that a rule makes graphs dearer hardly ever draws the few of its matches that do not; here it tries
those, too, after the others.

From each cheaper graph all steps are taken that are known to save something, by what such steps
have changed wherever the policy took them: the layers of a model are alike, and need not be learned
of one by one; see `savings`.

Once 24 episodes together gained less than a thousandth of what the model costs, such steps are also
taken from where any other episode ended: what it undid, or did otherwise, may lead to a cheaper
graph than before (an iterated local search). And the policy looks around anywhere on the way to the
cheapest graph: what cannot be done any more at its end, because something else was, may have saved
more.

On a model unlike those that it learned on a policy may be sure and wrong. So chance alone leads
some episodes, more of them the more often it made cheaper graphs than the policy did (Thompson
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
_MOST_WITHOUT_GAIN, _LEAST_GAIN = 24, 1e-3

_LOOK_EVERY, _LOOK_AT = 8, 7
_MOST_LOOKS = 64


class Player(Protocol):
    """A policy on one model."""

    def play(
        self, number: int, start: State, *, by_chance: bool = False
    ) -> Iterable[tuple[Step, State]]:
        """An episode.

        Args:
          number: of the episode, from 0.
          start: where it begins.
          by_chance: whether steps are drawn without the policy.

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
          num_good: how many of them, from the first on, led to a cheaper graph than all before; of
            a step that was looked at, than the one that it was taken from.
        """

    def descend(self, start: State) -> Iterable[tuple[Step, State]]:
        """Steps that are known to save something, each with the state after it.

        Args:
          start: where to begin. A step to a cheaper graph is where the next one begins.
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
    cheapest = reached = record.best
    num_without_gain, always_descends = 0, False
    leaders = _Leaders(generator)
    for number in range(num_rollouts):
        record.check()
        always_descends = always_descends or num_without_gain >= _MOST_WITHOUT_GAIN
        before = cheapest
        is_look = number % _LOOK_EVERY == _LOOK_AT
        by_chance = number > 0 and not is_look and leaders.draw_is_chance()
        if is_look:
            origin = _any_of(cheapest.trail, generator) if always_descends else cheapest
            cheapest, end = _look(record, player, number, origin, cheapest)
        else:
            origin = _origin(record.start, cheapest, number, generator)
            cheapest, end = _play(record, player, number, by_chance, origin, cheapest)
        if always_descends:
            descended = _descend(record, player, end)
            cheapest = min(cheapest, descended, key=lambda one: one.cost_ms)
        if not is_look:
            leaders.tell(by_chance, cheapest.cost_ms < before.cost_ms)
        num_without_gain += 1
        if cheapest.cost_ms < before.cost_ms:
            cheapest = _descend(record, player, cheapest)
        if reached.cost_ms - cheapest.cost_ms >= _LEAST_GAIN * record.start.cost_ms:
            reached, num_without_gain = cheapest, 0


class _Leaders:
    """Draws whether the policy or chance leads an episode; see the module."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        # Parameters of beta distributions of how often episodes gain, by whether chance leads: as
        # if either had gained, or failed to, in a few already, in favour of the policy.
        self._gained = {False: 3, True: 1}
        self._failed = {False: 1, True: 3}

    def draw_is_chance(self) -> bool:
        policy, chance = (
            self._generator.beta(self._gained[one], self._failed[one]) for one in (False, True)
        )
        return bool(chance > policy)

    def tell(self, by_chance: bool, has_gained: bool) -> None:
        counts = self._gained if has_gained else self._failed
        counts[by_chance] += 1


def _play(
    record: Record,
    player: Player,
    number: int,
    by_chance: bool,
    origin: Visited,
    cheapest: Visited,
) -> tuple[Visited, Visited]:
    """Plays an episode; the cheapest graph after it, and where it ended."""
    here, least_ms, num_without_gain = origin, origin.cost_ms, 0
    before_ms = cheapest.cost_ms
    steps, num_good = [], 0
    for step, state in player.play(number, origin.state, by_chance=by_chance):
        here = Visited(state, here, step)
        record.count(here)
        record.check()
        steps.append(step)
        is_new = here.cost_ms == cheapest.cost_ms and not cheapest.has_passed(state)
        if here.cost_ms < cheapest.cost_ms or is_new:
            cheapest = here
            num_good = len(steps) if here.cost_ms < before_ms else 0
        num_without_gain = 0 if here.cost_ms < least_ms else num_without_gain + 1
        least_ms = min(least_ms, here.cost_ms)
        goes_nowhere = num_without_gain >= _PATIENCE or here.cost_ms > _MOST * least_ms
        # The first episode is played to its end.
        if goes_nowhere and number > 0:
            break
    player.learn(steps, num_good)
    return cheapest, here


def _look(
    record: Record, player: Player, number: int, origin: Visited, cheapest: Visited
) -> tuple[Visited, Visited]:
    """Looks around; the cheapest graph after it, and where to go on from."""
    for step, state in itertools.islice(player.look(number, origin.state), _MOST_LOOKS):
        seen = Visited(state, origin, step)
        record.count(seen)
        record.check()
        player.learn([step], int(seen.cost_ms < origin.cost_ms))
        if seen.cost_ms < cheapest.cost_ms:
            return seen, seen
    return cheapest, origin


def _descend(record: Record, player: Player, here: Visited) -> Visited:
    """Takes steps that are known to save something; where they lead."""
    for step, state in player.descend(here.state):
        after = Visited(state, here, step)
        record.count(after)
        record.check()
        if after.cost_ms < here.cost_ms:
            here = after
    return here


def _origin(
    start: Visited, cheapest: Visited, number: int, generator: np.random.Generator
) -> Visited:
    """Where an episode begins."""
    if number % 4 == 0:
        return start
    if number % 4 == 2:
        return _any_of(cheapest.trail, generator)
    return cheapest


def _any_of(way: Sequence[Visited], generator: np.random.Generator) -> Visited:
    return way[generator.integers(len(way))]
