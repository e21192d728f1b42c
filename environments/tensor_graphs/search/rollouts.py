"""A search led by a policy: it plays episodes (rollouts) and keeps the cheapest graph it meets.

Where an episode begins. One in four begins at the model. Two in four begin at the cheapest graph so
far: an episode has a limited number of steps, and large models need more. The fourth begins
anywhere on the trail to the cheapest graph, where one bad step can be replaced and the others kept.
Ties go to the graph found last, unless it is already on the trail: many steps change nothing but
what the next ones can do.

When an episode ends early. The first one is played to its end. Any other is given up when it is
hopeless (`Hope`), after `_PATIENCE` steps without a gain or earlier.

Probing. In place of every `_PROBE_EVERY`-th episode, single steps from the cheapest graph are tried
until one makes a cheaper graph; of matches that look alike, one is tried. A policy that is sure
that a rule makes graphs dearer hardly ever draws the few matches where it does not. Probing reaches
those too, after the others.

Descending. From each new cheapest graph, the player takes all steps that are known to save
something, because a step that looks like them saved something earlier in this search (`savings`).
The layers of a model are alike, so what was learned in one is applied to all.

When gains stop. Once `_MAX_WITHOUT_GAIN` episodes in a row together save less than `_MIN_GAIN` of
the model's cost, the player also descends from where each episode ended, whatever its cost: an
iterated local search. From then on probing begins anywhere on the trail, because a step that is no
longer possible at its end may have saved more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.rewriting.engine import State
from environments.tensor_graphs.rewriting.matching import Match
from environments.tensor_graphs.search.record import Record
from environments.tensor_graphs.search.results import Budget, OnProgress, Progress, Result, Visited

_PATIENCE = 8
_LIKELIEST_PATIENCE, _NODES_PER_PATIENCE = 20, 6
_MAX_COST_RATIO = 1.05
_MAX_WITHOUT_GAIN, _MIN_GAIN = 24, 1e-3

_ORIGINS = ("model", "cheapest", "trail", "cheapest")
_PROBE_EVERY, _PROBE_AT = 8, 7
_MAX_PROBED = 64


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


def patience_with(graph: Graph, least: int = _LIKELIEST_PATIENCE) -> int:
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
    has made a cheaper graph. For each step the states before and after it are yielded.

    Raises:
      BudgetSpent: the budget is spent.
    """
    cheapest, origin = start, None
    # Episode 0 is the same whenever it begins at the same state, so it is not played there again.
    while origin is not cheapest:
        before = origin = cheapest
        hope = Hope(origin, patience)
        for match, state in guide.play(0, origin.state):
            after = _taken(record, before, match, state)
            yield before, after
            cheapest = min(cheapest, after, key=lambda visited: visited.cost_ms)
            if hope.is_lost(after):
                return
            before = after


def _taken(record: Record, before: Visited, match: Match, state: State) -> Visited:
    """Count a step as an expansion; return its state with the path to it."""
    after = Visited(state, before, match)
    record.count(after)
    record.check()
    return after


class Player(Guide, Protocol):
    """A guide that remembers what steps save on the model."""

    def probe(self, number: int, start: State) -> Played:
        """Take single steps from one state, the likeliest first, none whose saving is known.

        This is done in place of episode `number`.
        """

    def descend(self, start: State) -> Played:
        """Take the steps that are known to save something, each from the cheapest state so far."""


def follow(
    start: State,
    player: Player,
    num_rollouts: int = 64,
    budget: Budget | None = None,
    *,
    on_progress: OnProgress | None = None,
    earlier: Progress | None = None,
) -> Result:
    """Search for the cheapest graph by letting a player play; each step counts as an expansion.

    The number of rollouts includes those replaced by probing. `on_progress` is called a few times a
    second. If an `earlier` search has come somewhere, this one goes on from its cheapest graph, and
    plays all episodes again.
    """
    record = Record("policy", start, budget or Budget(), on_progress, earlier)
    return record.run(_follow, player=player, num_rollouts=num_rollouts)


def _follow(record: Record, player: Player, num_rollouts: int) -> None:
    generator = np.random.default_rng(0)
    cheapest = reached = record.best
    num_without_gain, always_descends = 0, False
    for number in range(num_rollouts):
        record.check()
        always_descends = always_descends or num_without_gain >= _MAX_WITHOUT_GAIN
        before = cheapest
        is_probe = number % _PROBE_EVERY == _PROBE_AT
        if is_probe:
            origin = _any_of(cheapest.trail, generator) if always_descends else cheapest
            cheapest, end = _probe(record, player, number, origin, cheapest)
        else:
            origin = _origin(record.start, cheapest, number, generator)
            cheapest, end = _play(record, player, number, origin, cheapest)
        if always_descends:
            descended = _descend(record, player, end)
            cheapest = min(cheapest, descended, key=lambda visited: visited.cost_ms)
        num_without_gain += 1
        if cheapest.cost_ms < before.cost_ms:
            cheapest = _descend(record, player, cheapest)
        if reached.cost_ms - cheapest.cost_ms >= _MIN_GAIN * record.start.cost_ms:
            reached, num_without_gain = cheapest, 0


def _play(
    record: Record, player: Player, number: int, origin: Visited, cheapest: Visited
) -> tuple[Visited, Visited]:
    """Play an episode; return the cheapest graph known after it, and where the episode ended."""
    here, hope = origin, Hope(origin, _PATIENCE)
    for match, state in player.play(number, origin.state):
        here = _taken(record, here, match, state)
        is_new = here.cost_ms == cheapest.cost_ms and not cheapest.has_passed(state)
        if here.cost_ms < cheapest.cost_ms or is_new:
            cheapest = here
        if hope.is_lost(here) and number > 0:
            break
    return cheapest, here


def _probe(
    record: Record, player: Player, number: int, origin: Visited, cheapest: Visited
) -> tuple[Visited, Visited]:
    """Try single steps; return the cheapest graph known after it, and where to go on from."""
    for match, state in itertools.islice(player.probe(number, origin.state), _MAX_PROBED):
        seen = _taken(record, origin, match, state)
        if seen.cost_ms < cheapest.cost_ms:
            return seen, seen
    return cheapest, origin


def _descend(record: Record, player: Player, here: Visited) -> Visited:
    """Take the steps that are known to save something; return the cheapest graph met."""
    for match, state in player.descend(here.state):
        after = _taken(record, here, match, state)
        if after.cost_ms < here.cost_ms:
            here = after
    return here


def _origin(
    start: Visited, cheapest: Visited, number: int, generator: np.random.Generator
) -> Visited:
    """Return where an episode begins; the module's docstring says why."""
    match _ORIGINS[number % len(_ORIGINS)]:
        case "model":
            return start
        case "trail":
            return _any_of(cheapest.trail, generator)
        case _:
            return cheapest


def _any_of(trail: Sequence[Visited], generator: np.random.Generator) -> Visited:
    return trail[generator.integers(len(trail))]
