"""How much matches save: learned from one match, and expected of all that look like it.

Models are made of layers that are alike: a rule that makes one of them cheaper mostly makes the
others cheaper too, and a rule that gains nothing in one need not be tried in the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from environments.tensor_graphs.rewriting.engine import State
from environments.tensor_graphs.rewriting.matching import Match
from environments.tensor_graphs.search.neighbourhoods import Key, NodeSignatures, signature_of
from environments.tensor_graphs.search.results import Step, step_of


class Savings:
    """Remembers how much matches changed the cost, by what they look like.

    Which operators a backend fuses can depend on nodes farther away than a signature reaches. So
    what is remembered only decides what to try first and what not to try, and the last match that
    looks alike is the one that counts.
    """

    def __init__(self) -> None:
        self._changes_ms: dict[Key, float] = {}

    def apply(self, state: State, match: Match) -> State:
        """Apply a match, and remember how that changed the cost."""
        after = state.apply(match)
        self.observe(state, match, after)
        return after

    def observe(self, before: State, match: Match, after: State) -> None:
        """Remember how a match changed the cost."""
        key = signature_of(NodeSignatures(before.graph), match)
        self._changes_ms[key] = after.cost_ms - before.cost_ms

    def is_known(self, signatures: NodeSignatures, match: Match) -> bool:
        """Whether a match that looks like this one has been applied."""
        return signature_of(signatures, match) in self._changes_ms

    def change_ms(self, state: State, signatures: NodeSignatures, match: Match) -> float:
        """Return how much a match changes the cost; apply it if none like it was yet."""
        key = signature_of(signatures, match)
        if key not in self._changes_ms:
            self._changes_ms[key] = state.apply(match).cost_ms - state.cost_ms
        return self._changes_ms[key]

    def descend(self, start: State) -> Iterator[tuple[Match, State]]:
        """Apply all matches that are known to save something, those that save most first.

        Yields:
          Each match with the state after it. The next match is applied to the cheaper of that state
          and the one before.
        """
        here, tried = start, set[Step]()
        while (match := self._best(here, tried)) is not None:
            tried.add(step_of(match))
            after = self.apply(here, match)
            yield match, after
            if after.cost_ms < here.cost_ms:
                here = after

    def _best(self, state: State, tried: Collection[Step]) -> Match | None:
        """Return the match that saves most, of those that are known to save something."""
        signatures = NodeSignatures(state.graph)
        best, least_ms = None, 0.0
        for match in state.matches:
            change_ms = self._changes_ms.get(signature_of(signatures, match), 0.0)
            if change_ms < least_ms and step_of(match) not in tried:
                best, least_ms = match, change_ms
        return best
