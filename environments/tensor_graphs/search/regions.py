"""Our search: region by region, and what was learned of one region is used in all that look alike.

Most rules touch a few nodes, and what a rule saves in one place does not depend on what is done in
another. TASO's queue holds whole graphs: where two independent steps can be taken it meets both
orders, and of n of them all 2^n subsets. Here instead

  - what a match saves is asked once for all places of the same operators and types (`signature`);
  - steps that save something are taken at once, those that save most first;
  - a step that saves nothing is taken only to see what it makes possible: from there a small
    best-first search tries the matches that are new or near, and nothing else, and either returns
    with a cheaper graph or is forgotten;
  - a way that led to a cheaper graph is tried first wherever it begins alike (`colours`): a
    model's second layer costs a few steps where the first one cost a search;
  - these searches grow, from a few steps to many, as long as the budget lasts.
"""

from __future__ import annotations

import heapq
from typing import Any

from environments.tensor_graphs.search.neighbourhoods import (
    around,
    changed,
    colours,
    nodes_of,
    signature,
)
from environments.tensor_graphs.search.record import Record
from environments.tensor_graphs.search.results import Visited

ROUNDS = ((1, 4), (4, 1), (32, 1), (256, 1))
"""(steps that a region's search may try, how far two places have to look alike to be tried once).

What a step saves is mostly decided where it is taken. Not always: what is fused with what can
depend on operators farther away. So each place is tried alone first.
"""

Key = tuple[Any, ...]
"""A rule and how the place looks."""

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
        for effort, self.radius in rounds:
            self.failed.clear()
            while self._search_regions(effort):
                self._descend()

    def _descend(self) -> None:
        """Takes steps that save something, those that save most first."""
        while True:
            keys = self._signatures(self.here)
            best: tuple[float, int] | None = None
            tried: dict[int, Visited] = {}
            for number, (match, key) in enumerate(zip(self.here.state.matches, keys, strict=True)):
                if key not in self.changes_ms:
                    tried[number] = self._try(match, key)
                change_ms = self.changes_ms[key]
                if change_ms < 0 and (best is None or change_ms < best[0]):
                    best = (change_ms, number)
            if best is None:
                return
            number = best[1]
            found = tried.get(number) or self._try(self.here.state.matches[number], keys[number])
            if found.cost_ms < self.here.cost_ms:
                self.here = found

    def _try(self, match: Any, key: Key) -> Visited:
        found = self.record.expand(self.here, match)
        self.changes_ms[key] = found.cost_ms - self.here.cost_ms
        return found

    def _search_regions(self, effort: int) -> bool:
        """Looks for a way to a cheaper graph; goes there if there is one."""
        keys = self._keys(self.here)
        matches = self.here.state.matches
        # What costs least is tried first: a step that costs nothing may well prepare another.
        changes_ms = [self.changes_ms.get(one, 0.0) for one in self._signatures(self.here)]
        order = sorted(range(len(matches)), key=lambda one: (changes_ms[one], one))
        for number in order:
            key = keys[number]
            if key in self.failed:
                continue
            found = self._repeat(matches[number], key) or self._explore(matches[number], effort)
            if found is None:
                self.failed.add(key)
                continue
            self._remember(found, key)
            self.here = found
            return True
        return False

    def _explore(self, match: Any, effort: int) -> Visited | None:
        """A best-first search that begins with a match and stays around it."""
        origin = self.here
        limit_ms = self.alpha * origin.cost_ms
        first = self.record.expand(origin, match)
        best = first if first.cost_ms < origin.cost_ms else None
        seen = {hash(origin.state.graph), hash(first.state.graph)}
        queue = [(first.cost_ms, 0, first)] if first.cost_ms <= limit_ms else []
        tried = 1
        while queue:
            _, _, here = heapq.heappop(queue)
            for near in self._near(origin, here):
                if tried >= effort:
                    return best
                tried += 1
                found = self.record.expand(here, near)
                if hash(found.state.graph) in seen:
                    continue
                seen.add(hash(found.state.graph))
                if found.cost_ms < (best or origin).cost_ms:
                    best = found
                if found.cost_ms <= limit_ms:
                    heapq.heappush(queue, (found.cost_ms, tried, found))
        return best

    def _near(self, origin: Visited, here: Visited) -> list[Any]:
        """Matches in the region: those of the last rule first, then those that cost least."""
        region = self._region(origin, here)
        last = here.step.xfer if here.step else ""
        found = [
            ((match.xfer != last, self.changes_ms.get(signature, 0.0), number), match)
            for number, (match, signature) in enumerate(
                zip(here.state.matches, self._signatures(here), strict=True)
            )
            if not region.isdisjoint(nodes_of(match))
        ]
        found.sort(key=lambda one: one[0])
        return [match for _, match in found]

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
                following = next(
                    (
                        one
                        for one, key in zip(here.state.matches, self._keys(here), strict=True)
                        if key == wanted and not region.isdisjoint(nodes_of(one))
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
        steps: list[Visited] = []
        one = found
        while one is not self.here and one.parent is not None:
            steps.append(one)
            one = one.parent
        way = []
        for step in reversed(steps):
            assert step.parent is not None and step.step is not None
            state = step.parent.state
            keys = zip(state.matches, self._keys(step.parent), strict=True)
            way.append(next(key for match, key in keys if _is(match, step)))
        known = self.ways.setdefault(key, [])
        if tuple(way) not in known:
            known.insert(0, tuple(way))

    def _signatures(self, visited: Visited) -> list[Key]:
        """For each match: what it changes of the cost depends on this."""
        graph: Any = visited.state.graph
        known: dict[int, int] = {}
        found = []
        for match in visited.state.matches:
            numbers = nodes_of(match)
            for number in numbers:
                if number not in known:
                    known[number] = signature(graph, number)
            found.append((match.xfer, *(known[number] for number in numbers)))
        return found

    def _keys(self, visited: Visited) -> list[Key]:
        """For each match: what can be done from there on depends on this."""
        graph: Any = visited.state.graph
        colour = colours(graph, self.radius)
        return [
            (match.xfer, *(colour[number] for number in nodes_of(match)))
            for match in visited.state.matches
        ]


def _is(match: Any, visited: Visited) -> bool:
    return (match.xfer, tuple(match.location)) == visited.step
