"""Our search: it improves a graph region by region, and reuses in each what it found in others.

Most rules touch a few nodes, and what a rule saves in one place does not depend on what is done in
another. TASO's queue holds whole graphs: where two independent steps are possible it meets both
orders, and with n of them all 2^n subsets. This search instead

  - takes steps that only remove computations, in any order, before it looks at others;
  - tries one of all matches that look alike (`signature_of`), and expects the same of the others;
  - takes steps that save something at once and wherever they apply, those that save most first;
  - takes a step that saves nothing only to see what it makes possible: a small best-first search
    tries the matches that are new or near, and nothing else, and its result is kept only if it is
    cheaper than the graph that it began with;
  - remembers the steps that led to a cheaper graph as a recipe, and tries it first wherever a match
    looks like the recipe's first one (`NodeSignatures.colour`): a model's second layer costs a
    few steps where the first one cost a search;
  - looks for rules whose matches disappeared along the trail. It goes back to where such a rule had
    most of them, applies it first, and keeps the result if that ends cheaper (`_applied_at_all`,
    `_applied_where_it_pays`);
  - lets the small searches grow, from a few steps to many, as long as the budget lasts.

A guide, such as a learned policy, may lead the search (`_Regions.follow`): the guide plays an
episode, and another one from where descending leads without it. The search goes on from the cheaper
end. When nothing is left to try, it begins anew without the guide, so a bad guide costs time, but
never the result.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

from environments.tensor_graphs.rewriting.matching import Match
from environments.tensor_graphs.search.neighbourhoods import (
    Key,
    NodeSignatures,
    changed_since,
    fingerprint,
    region_of,
    rules_that_lost_matches,
    signature_of,
)
from environments.tensor_graphs.search.record import Record
from environments.tensor_graphs.search.results import Visited
from environments.tensor_graphs.search.rollouts import Guide, likeliest, patience_with

_ROUNDS = ((1, 4), (4, 1), (32, 1), (256, 1))
"""(steps that a region's search may try, radius in edges within which keys of matches agree).

What a step saves mostly depends on the nodes around it, but which operators a backend fuses can
depend on nodes farther away. So the first round, of one step each, tells more matches apart.
"""

_ALPHA = 1.05
"""A small search goes on from graphs that cost up to this many times the graph it began with."""

_RETURN_AFTER = 1
"""Index of the round after which rules are tried again whose matches disappeared on the trail."""

_RETURN_EFFORT = 12
"""Steps that each small search may try where such a rule is applied first."""

_PATIENCE = 8
"""Once a region's search has found something after n steps, it may try 2 n + this many in all."""

Recipe = tuple[Key, ...]
"""Keys of the matches that are applied one after another."""


def regions(record: Record, guide: Guide | None = None) -> None:
    """Search region by region, led by a guide at first if there is one; see the module."""
    origin = record.best
    if guide is not None:
        led = _Regions(record, origin)
        led.follow(guide)
        led.run()
    _Regions(record, origin).run()


def removal(record: Record) -> None:
    """Take only steps that remove computations and save something: what needs no search."""
    _Regions(record, record.best).remove()


class _Regions:
    """The state of one search.

    Attributes:
      changes_ms: for each signature of a match, the change of cost when one was last applied.
      recipes: for each key, those that begin with it; the one found last comes first.
      failed: keys from which a search of the present effort found nothing.
      radius: how far in edges two neighbourhoods must agree for matches to have the same key.
    """

    def __init__(self, record: Record, here: Visited) -> None:
        self.record, self.here = record, here
        self.radius = 1
        self.changes_ms: dict[Key, float] = {}
        self.recipes: dict[Key, list[Recipe]] = {}
        self.failed: set[Key] = set()

    def follow(self, guide: Guide) -> None:
        """Go where the guide's episode leads, or descending and then another episode."""
        origin = self.here
        self._play(guide)
        led, self.here = self.here, origin
        self._descend()
        self._play(guide)
        if led.cost_ms <= self.here.cost_ms:
            self.here = led

    def _play(self, guide: Guide) -> None:
        """Go to the cheapest graph that the guide meets; learn from its steps."""
        patience = patience_with(self.here.state.graph)
        for before, after in likeliest(self.record, guide, self.here, patience):
            assert after.match is not None
            key = signature_of(NodeSignatures(before.state.graph), after.match)
            self.changes_ms[key] = after.cost_ms - before.cost_ms
            if after.cost_ms < self.here.cost_ms:
                self.here = after

    def run(self) -> None:
        """Play all rounds."""
        self._descend()
        for number, (effort, self.radius) in enumerate(_ROUNDS):
            # What failed with less effort may succeed now.
            self.failed.clear()
            while self._search_regions(effort):
                self._descend()
            if number == _RETURN_AFTER:
                apply_fns = (self._applied_at_all, self._applied_where_it_pays)
                while any(self._return_to_lost_matches(apply_fn) for apply_fn in apply_fns):
                    pass

    def _descend(self) -> None:
        """Take all steps that save something, those that save most first."""
        while True:
            self.remove()
            signatures = NodeSignatures(self.here.state.graph)
            best: tuple[float, Key] | None = None
            for match in self.here.state.matches:
                key = signature_of(signatures, match)
                if key not in self.changes_ms:
                    self._apply(self.here, match, key)
                change_ms = self.changes_ms[key]
                if change_ms < 0 and (best is None or change_ms < best[0]):
                    best = (change_ms, key)
            if best is None:
                return
            self._take_everywhere(best[1])

    def remove(self) -> None:
        """Take steps that only remove computations, as long as that saves something.

        Most of them do, whatever is done beside them, so none waits until all others were tried.
        """
        while (child := self._after_removal()) is not None:
            self.here = child

    def _after_removal(self) -> Visited | None:
        signatures = NodeSignatures(self.here.state.graph)
        for match in self.here.state.matches:
            if not match.only_removes:
                continue
            key = signature_of(signatures, match)
            if key not in self.changes_ms or self.changes_ms[key] < 0:
                child = self._apply(self.here, match, key)
                if child.cost_ms < self.here.cost_ms:
                    return child
        return None

    def _take_everywhere(self, key: Key) -> None:
        """Apply all matches of one signature, as long as that saves something."""
        while self.changes_ms[key] < 0:
            # The last step has changed what its neighbours look like.
            signatures = NodeSignatures(self.here.state.graph)
            alike = (
                match
                for match in self.here.state.matches
                if match.rule == key[0] and signature_of(signatures, match) == key
            )
            if (match := next(alike, None)) is None:
                return
            child = self._apply(self.here, match, key)
            if child.cost_ms < self.here.cost_ms:
                self.here = child

    def _return_to_lost_matches(self, apply_fn: Callable[[Visited, str], Visited]) -> bool:
        """Go back to where a rule had more matches, apply it first; return whether that gains.

        A step that saves something at once may destroy the match of a rule that would have saved
        more in the end. So that rule is applied first, and then all steps that save something are
        taken. If this leads to a cheaper graph, the search goes on from there. `apply_fn` maps the
        last state in which the rule had most matches, and the rule, to a state after it was
        applied, or to the same state.
        """
        origin = best = self.here
        for rule, where in rules_that_lost_matches(origin).items():
            self.here = apply_fn(where, rule)
            if self.here is not where and self.here.cost_ms <= _ALPHA * where.cost_ms:
                self._descend()
            if self.here.cost_ms < best.cost_ms:
                best = self.here
        self.here = best
        return best is not origin

    def _applied_at_all(self, here: Visited, rule: str) -> Visited:
        """Apply a rule at all locations where it matches; return the state after that."""
        places = {match.location for match in here.state.matches if match.rule == rule}
        while True:
            remaining = (
                match
                for match in here.state.matches
                if match.rule == rule and match.location in places
            )
            if (match := next(remaining, None)) is None:
                return here
            places.discard(match.location)
            here = self.record.expand(here, match)

    def _applied_where_it_pays(self, here: Visited, rule: str) -> Visited:
        """Apply a rule where in the end it saves more than any overlapping match does at once."""
        self.here = here
        self.failed.clear()
        while self._apply_once_where_it_pays(rule):
            pass
        return self.here

    def _apply_once_where_it_pays(self, rule: str) -> bool:
        signatures, matches = NodeSignatures(self.here.state.graph), self.here.state.matches

        def change_at_once_ms(match: Match) -> float:
            nodes = set(match.nodes)
            return min(
                self.changes_ms.get(signature_of(signatures, neighbour), 0.0)
                for neighbour in matches
                if not nodes.isdisjoint(neighbour.nodes)
            )

        starts = [match for match in matches if match.rule == rule]
        return self._improve_from(signatures, starts, _RETURN_EFFORT, change_at_once_ms)

    def _apply(self, here: Visited, match: Match, key: Key) -> Visited:
        child = self.record.expand(here, match)
        self.changes_ms[key] = child.cost_ms - here.cost_ms
        return child

    def _search_regions(self, effort: int) -> bool:
        """Search each region, and go to the first cheaper graph; return whether there is one."""
        signatures, matches = NodeSignatures(self.here.state.graph), self.here.state.matches
        # The cheapest steps are tried first: one that costs nothing may well prepare another.
        starts = sorted(
            matches, key=lambda match: self.changes_ms.get(signature_of(signatures, match), 0.0)
        )
        return self._improve_from(signatures, starts, effort, lambda match: 0.0)

    def _improve_from(
        self,
        signatures: NodeSignatures,
        matches: Iterable[Match],
        effort: int,
        to_beat_ms: Callable[[Match], float],
    ) -> bool:
        """Take steps that begin with one of the matches and save enough; return whether any do.

        The search from each match may try `effort` steps; the change of cost by those from it must
        be below `to_beat_ms`.
        """
        for match in matches:
            key = self._key(signatures, match)
            if key in self.failed:
                continue
            cheaper = self._follow_recipes(match, key) or self._explore(match, effort)
            if cheaper is not None and cheaper.cost_ms - self.here.cost_ms < to_beat_ms(match):
                self._remember_recipe(cheaper, key)
                self.here = cheaper
                return True
            self.failed.add(key)
        return False

    def _explore(self, match: Match, effort: int) -> Visited | None:
        """Search best-first from a match and around it; return the cheapest state if it gains."""
        origin = self.here
        limit_ms = _ALPHA * origin.cost_ms
        best: Visited | None = None
        seen: set[int] = set()
        queue: list[tuple[float, int, Visited, Iterator[tuple[Match, Key]]]] = []
        key = signature_of(NodeSignatures(origin.state.graph), match)
        here, steps = origin, iter([(match, key)])
        tried = enough = 0
        while tried < effort and not (best and tried > enough):
            step = next(steps, None)
            if step is None:
                if queue:
                    heapq.heappop(queue)
            else:
                tried += 1
                child = self._apply(here, *step)
                mark = fingerprint(child.state.graph, *changed_since(origin, child))
                if mark not in seen:
                    seen.add(mark)
                    if child.cost_ms < (best or origin).cost_ms:
                        best, enough = child, 2 * tried + _PATIENCE
                    if child.cost_ms <= limit_ms:
                        near = self._near(origin, child)
                        heapq.heappush(queue, (child.cost_ms, tried, child, near))
            if not queue:
                break
            _, _, here, steps = queue[0]
        return best

    def _near(self, origin: Visited, here: Visited) -> Iterator[tuple[Match, Key]]:
        """Yield the matches of `here` in the region that a search from `origin` has changed.

        Matches that are known to save something come first; among them and among the others those
        of the last rule, then those that change the cost least.
        """
        region = region_of(origin, here)
        signatures = NodeSignatures(here.state.graph)
        last = here.match.rule if here.match else ""
        near = [
            (match, signature_of(signatures, match))
            for match in here.state.matches
            if not region.isdisjoint(match.nodes)
        ]

        def rank(pair: tuple[Match, Key]) -> tuple[bool, bool, float]:
            match, key = pair
            change_ms = self.changes_ms.get(key, 0.0)
            return change_ms >= 0, match.rule != last, change_ms

        # The sort is stable: the engine's order breaks ties, and is the same in every process.
        yield from sorted(near, key=rank)

    def _follow_recipes(self, match: Match, key: Key) -> Visited | None:
        """Follow the recipes that begin with a match's key; return the first cheaper state."""
        for recipe in self.recipes.get(key, ()):
            here = self.record.expand(self.here, match)
            for wanted in recipe[1:]:
                region = region_of(self.here, here)
                signatures = NodeSignatures(here.state.graph)
                alike = (
                    candidate
                    for candidate in here.state.matches
                    if candidate.rule == wanted[0]
                    and not region.isdisjoint(candidate.nodes)
                    and self._key(signatures, candidate) == wanted
                )
                if (following := next(alike, None)) is None:
                    break
                here = self.record.expand(here, following)
            if here.cost_ms < self.here.cost_ms:
                return here
        return None

    def _remember_recipe(self, cheaper: Visited, key: Key) -> None:
        """Remember the steps from `here` to a cheaper state, under the key of the first one."""
        steps = []
        for visited in cheaper.since(self.here):
            assert visited.parent is not None and visited.match is not None
            signatures = NodeSignatures(visited.parent.state.graph)
            steps.append(self._key(signatures, visited.match))
        recipe, recipes = tuple(steps), self.recipes.setdefault(key, [])
        if recipe not in recipes:
            recipes.insert(0, recipe)

    def _key(self, signatures: NodeSignatures, match: Match) -> Key:
        """Return a key that is equal for matches whose next steps are expected to be the same."""
        return (match.rule, *(signatures.colour(number, self.radius) for number in match.nodes))
