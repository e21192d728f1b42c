"""Our search: region by region, and what was learned of one region is used in all that look alike.

Most rules touch a few nodes, and what a rule saves in one place does not depend on what is done in
another. TASO's queue holds whole graphs: where two independent steps can be taken it meets both
orders, and of n of them all 2^n subsets. Here instead

  - what a match saves is asked once for all places of the same operators and types (`signature`);
  - steps that save something are taken at once and everywhere, those that save most first;
  - a step that saves nothing is taken only to see what it makes possible: from there a small
    best-first search tries the matches that are new or near, and nothing else, and either returns
    with a cheaper graph or is forgotten;
  - a way that led to a cheaper graph is tried first wherever it begins alike (`colour`): a model's
    second layer costs a few steps where the first one cost a search;
  - a rule that had places once, and lost them to steps that saved something at once, is applied
    to all of them after all, as if that way had not been taken (`_everywhere`), and later to
    those from where a search finds more than was saved at once (`_detours`);
  - these searches grow, from a few steps to many, as long as the budget lasts.
"""

from __future__ import annotations

import collections
import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from environments.tensor_graphs.search.neighbourhoods import (
    Key,
    Looks,
    around,
    changed,
    fingerprint,
    nodes_of,
    signature_of,
)
from environments.tensor_graphs.search.record import Record
from environments.tensor_graphs.search.results import Visited, match_of

ROUNDS = ((1, 4), (4, 1), (32, 1), (256, 1))
"""(steps that a region's search may try, how far two places have to look alike to be tried once).

What a step saves is mostly decided where it is taken. Not always: what is fused with what can
depend on operators farther away. So each place is tried alone first.
"""

_LAST_BEFORE_TURNS = 1
"""After this of the rounds, while they are cheap, it is asked what the way has missed."""

_DETOUR = 12
"""Steps that the search for one detour may try."""

_PATIENCE = 8
"""Once a region's search has found something it may try twice as often, and a little."""

Way = tuple[Key, ...]
"""Steps to be taken one after another."""


def regions(
    record: Record, alpha: float = 1.05, rounds: tuple[tuple[int, int], ...] = ROUNDS
) -> None:
    """Searches.

    Args:
      record: where it begins.
      alpha: a region's search may pass graphs that cost so many times the cost it began with.
      rounds: see `ROUNDS`.
    """
    _Regions(record, alpha).run(rounds)


class _Regions:
    """The search.

    Attributes:
      here: the best state.
      changes_ms: of steps tried, by signature: what they change of the cost.
      ways: that led to cheaper graphs, by the key of their first step.
      failed: keys from which a search of the present effort found nothing.
      radius: how far two places have to look alike to have the same key.
    """

    def __init__(self, record: Record, alpha: float) -> None:
        self.record = record
        self.alpha = alpha
        self.radius = 1
        self.here = record.best
        self.changes_ms: dict[Key, float] = {}
        self.ways: dict[Key, list[Way]] = {}
        self.failed: set[Key] = set()

    def run(self, rounds: tuple[tuple[int, int], ...]) -> None:
        """All rounds."""
        self._descend()
        for number, (effort, self.radius) in enumerate(rounds):
            self.failed.clear()
            while self._search_regions(effort):
                self._descend()
            if number == _LAST_BEFORE_TURNS:
                while self._leave(self._everywhere) or self._leave(self._detours):
                    pass

    def _descend(self) -> None:
        """Takes steps that save something: those that save most first, and each everywhere."""
        while True:
            looks = _looks(self.here)
            best: tuple[float, Key] | None = None
            for match in self.here.state.matches:
                key = signature_of(looks, match)
                if key not in self.changes_ms:
                    self._try(self.here, match, key)
                change_ms = self.changes_ms[key]
                if change_ms < 0 and (best is None or change_ms < best[0]):
                    best = (change_ms, key)
            if best is None:
                return
            self._take_everywhere(best[1])

    def _take_everywhere(self, key: Key) -> None:
        """Takes a step wherever it looks the same, as long as it saves something."""
        while self.changes_ms[key] < 0:
            looks = _looks(self.here)
            match = next(
                (
                    one
                    for one in self.here.state.matches
                    if one.xfer == key[0] and signature_of(looks, one) == key
                ),
                None,
            )
            if match is None:
                return
            found = self._try(self.here, match, key)
            if found.cost_ms < self.here.cost_ms:
                self.here = found

    def _leave(self, begin: Callable[[Visited, str], Visited]) -> bool:
        """Leaves the way where a rule could be applied that cannot be any more.

        What saves something at once may take away what would have saved more, though not at its
        first step. So it is begun otherwise, and then all is done that saves something. Goes there
        if that is a cheaper graph.

        Args:
          begin: (the last state in which the rule had most places, the rule) -> a state after it,
            or the same.
        """
        origin = best = self.here
        for xfer, where in _missed(origin).items():
            self.here = begin(where, xfer)
            if self.here is not where and self.here.cost_ms <= self.alpha * where.cost_ms:
                self._descend()
            if self.here.cost_ms < best.cost_ms:
                best = self.here
        self.here = best
        return best is not origin

    def _everywhere(self, here: Visited, xfer: str) -> Visited:
        """After a rule was applied at all places where it applied before."""
        places = {tuple(one.location) for one in here.state.matches if one.xfer == xfer}
        while True:
            match = next(
                (
                    one
                    for one in here.state.matches
                    if one.xfer == xfer and tuple(one.location) in places
                ),
                None,
            )
            if match is None:
                return here
            places.discard(tuple(match.location))
            here = self.record.expand(here, match)

    def _detours(self, here: Visited, xfer: str) -> Visited:
        """After all ways that begin with a rule and save more than any step there does at once."""
        self.here = here
        self.failed.clear()
        while self._take_detour(xfer):
            pass
        return self.here

    def _take_detour(self, xfer: str) -> bool:
        looks, matches = _looks(self.here), self.here.state.matches

        def at_once_ms(match: Any) -> float:
            nodes = set(nodes_of(match))
            return min(
                self.changes_ms.get(signature_of(looks, one), 0.0)
                for one in matches
                if not nodes.isdisjoint(nodes_of(one))
            )

        return self._go(looks, [one for one in matches if one.xfer == xfer], _DETOUR, at_once_ms)

    def _try(self, here: Visited, match: Any, key: Key) -> Visited:
        found = self.record.expand(here, match)
        self.changes_ms[key] = found.cost_ms - here.cost_ms
        return found

    def _search_regions(self, effort: int) -> bool:
        """Looks for a way to a cheaper graph; goes there if there is one."""
        looks, matches = _looks(self.here), self.here.state.matches
        # What costs least is tried first: a step that costs nothing may well prepare another.
        changes_ms = [self.changes_ms.get(signature_of(looks, one), 0.0) for one in matches]
        order = sorted(range(len(matches)), key=lambda one: (changes_ms[one], one))
        return self._go(looks, [matches[one] for one in order], effort, lambda match: 0.0)

    def _go(
        self,
        looks: Looks,
        matches: Iterable[Any],
        effort: int,
        to_beat_ms: Callable[[Any], float],
    ) -> bool:
        """Goes the first way found that begins with one of the matches and changes the cost enough.

        Args:
          looks: of the state.
          matches: in the order in which they are tried.
          effort: steps that a search may try.
          to_beat_ms: what a way from a match has to change the cost by, at least.
        """
        for match in matches:
            key = self._key(looks, match)
            if key in self.failed:
                continue
            found = self._repeat(match, key) or self._explore(match, effort)
            if found is not None and found.cost_ms - self.here.cost_ms < to_beat_ms(match):
                self._remember(found, key)
                self.here = found
                return True
            self.failed.add(key)
        return False

    def _explore(self, match: Any, effort: int) -> Visited | None:
        """A best-first search that begins with a match and stays around it.

        A state that is cheaper than the one it was made from is gone on with at once.
        """
        origin = self.here
        graph: Any = origin.state.graph
        limit_ms = self.alpha * origin.cost_ms
        best: Visited | None = None
        seen: set[int] = set()
        queue: list[tuple[float, int, Visited, Iterator[tuple[Any, Key]]]] = []
        here, steps = origin, iter([(match, signature_of(_looks(origin), match))])
        tried = enough = 0
        while tried < effort and not (best and tried > enough):
            step = next(steps, None)
            if step is None:
                if queue:
                    heapq.heappop(queue)
            else:
                tried += 1
                found = self._try(here, *step)
                mark = fingerprint(graph, found.state.graph)  # type: ignore[arg-type]
                if mark not in seen:
                    seen.add(mark)
                    if found.cost_ms < (best or origin).cost_ms:
                        best, enough = found, 2 * tried + _PATIENCE
                    if found.cost_ms <= limit_ms:
                        near = self._near(origin, found)
                        heapq.heappush(queue, (found.cost_ms, tried, found, near))
            if not queue:
                break
            _, _, here, steps = queue[0]
        return best

    def _near(self, origin: Visited, here: Visited) -> Iterator[tuple[Any, Key]]:
        """Matches in the region: those of the last rule first, then those that cost least."""
        region = self._region(origin, here)
        looks = _looks(here)
        last = here.step.xfer if here.step else ""
        found = [
            (match, signature_of(looks, match))
            for match in here.state.matches
            if not region.isdisjoint(nodes_of(match))
        ]
        changes_ms = [self.changes_ms.get(key, 0.0) for _, key in found]
        order = sorted(
            range(len(found)),
            key=lambda one: (
                changes_ms[one] >= 0,
                found[one][0].xfer != last,
                changes_ms[one],
                one,
            ),
        )
        yield from (found[one] for one in order)

    def _region(self, origin: Visited, here: Visited) -> set[int]:
        """What the steps from `origin` to `here` have changed, and what is next to that."""
        graph: Any = here.state.graph
        return around(graph, changed(origin.state.graph, graph))  # type: ignore[arg-type]

    def _repeat(self, match: Any, key: Key) -> Visited | None:
        """Goes the ways that once began like this."""
        for way in self.ways.get(key, ()):
            here = self.record.expand(self.here, match)
            for wanted in way[1:]:
                region = self._region(self.here, here)
                looks = _looks(here)
                following = next(
                    (
                        one
                        for one in here.state.matches
                        if one.xfer == wanted[0]
                        and not region.isdisjoint(nodes_of(one))
                        and self._key(looks, one) == wanted
                    ),
                    None,
                )
                if following is None:
                    break
                here = self.record.expand(here, following)
            if here.cost_ms < self.here.cost_ms:
                return here
        return None

    def _remember(self, found: Visited, key: Key) -> None:
        way = []
        for one in found.since(self.here):
            assert one.parent is not None and one.step is not None
            match = match_of(one.parent.state, one.step)
            way.append(self._key(_looks(one.parent), match))
        known = self.ways.setdefault(key, [])
        if tuple(way) not in known:
            known.insert(0, tuple(way))

    def _key(self, looks: Looks, match: Any) -> Key:
        """What can be done from a match on depends on this."""
        return (match.xfer, *(looks.colour(number, self.radius) for number in nodes_of(match)))


def _missed(visited: Visited) -> dict[str, Visited]:
    """Rules that have lost places on a way, and the last state in which they had most."""
    peaks: dict[str, tuple[int, Visited]] = {}
    counts: collections.Counter[str] = collections.Counter()
    for one in visited.trail:
        counts = collections.Counter(match.xfer for match in one.state.matches)
        for xfer, count in counts.items():
            if xfer not in peaks or count >= peaks[xfer][0]:
                peaks[xfer] = count, one
    return {xfer: where for xfer, (count, where) in peaks.items() if count > counts[xfer]}


def _looks(visited: Visited) -> Looks:
    graph: Any = visited.state.graph
    return Looks(graph)
