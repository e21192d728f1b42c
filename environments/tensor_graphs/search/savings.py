"""What steps save, known of all places that look like one where such a step was taken.

Models are made of layers that are alike: of what makes one of them cheaper the others mostly have
as much, and what gains nothing in one of them need not be tried in the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from environments.tensor_graphs.engine import State
from environments.tensor_graphs.matching import Match
from environments.tensor_graphs.search.neighbourhoods import Key, Looks, signature_of
from environments.tensor_graphs.search.results import Step, step_of


class Savings:
    """Remembers what steps changed the cost by, by the signatures of their places.

    What is fused with what can depend on operators farther away than a signature reaches. So what
    is known is what to try first, or not to try; it is not relied on, and the last step counts.
    """

    def __init__(self) -> None:
        self._changes_ms: dict[Key, float] = {}

    def apply(self, state: State, match: Match) -> State:
        """The state after a match was applied; what that changed is known from now on."""
        after = state.apply(match)
        self.tell(state, match, after)
        return after

    def tell(self, before: State, match: Match, after: State) -> None:
        """Is told what became of a state by a match."""
        key = signature_of(Looks(before.graph), match)
        self._changes_ms[key] = after.cost_ms - before.cost_ms

    def is_known(self, looks: Looks, match: Match) -> bool:
        """Whether one that looks like it has been applied."""
        return signature_of(looks, match) in self._changes_ms

    def descend(self, start: State) -> Iterator[tuple[Step, State]]:
        """Takes all steps that are known to save something, those that save most first.

        Yields:
          Steps, each with the state after it. Where that is no cheaper than the one before, the
          next step is taken from the one before.
        """
        here, tried = start, set[Step]()
        while (match := self._best(here, tried)) is not None:
            tried.add(step_of(match))
            after = self.apply(here, match)
            yield step_of(match), after
            if after.cost_ms < here.cost_ms:
                here = after

    def _best(self, state: State, tried: Collection[Step]) -> Match | None:
        """Of the matches that are known to save something the one that saves most."""
        looks = Looks(state.graph)
        best, least_ms = None, 0.0
        for match in state.matches:
            change_ms = self._changes_ms.get(signature_of(looks, match), 0.0)
            if change_ms < least_ms and step_of(match) not in tried:
                best, least_ms = match, change_ms
        return best
