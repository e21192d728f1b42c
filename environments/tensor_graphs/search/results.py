"""What a search is given and what it returns."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol


class Match(Protocol):
    """A place where a rule applies."""

    @property
    def xfer(self) -> str:
        """Name of the rule."""

    @property
    def location(self) -> tuple[int, ...]:
        """The nodes that tell this match from the rule's others."""


class State(Protocol):
    """A graph, what applies to it, and its cost. `engine.State` is one; tests have others."""

    @property
    def graph(self) -> Hashable:
        """Equal graphs are equal and have the same hash in every process."""

    @property
    def matches(self) -> Sequence[Any]:
        """All matches, in an order that does not vary."""

    @property
    def cost_ms(self) -> float:
        """What the graph costs."""

    def apply(self, match: Any) -> State:
        """The state after a match was applied; this one stays as it is."""


class Step(NamedTuple):
    """The application of a rule: (xfer, location) is the thesis's action (4.2.2)."""

    xfer: str
    location: tuple[int, ...]


def step_of(match: Match) -> Step:
    """What to write down of a match so that it can be found again."""
    return Step(match.xfer, tuple(match.location))


def match_of(state: State, step: Step) -> Any:
    """The match that a step applies.

    Raises:
      LookupError: there is none.
    """
    for match in state.matches:
        if match.xfer == step.xfer and step_of(match) == step:
            return match
    raise LookupError(f"no match of {step.xfer} at {step.location}")


@dataclasses.dataclass(frozen=True, eq=False)
class Visited:
    """A state and the way to it.

    Attributes:
      state: the state.
      parent: where it came from; None where the search began.
      step: what was applied to the parent's state.
    """

    state: State
    parent: Visited | None = None
    step: Step | None = None

    @property
    def cost_ms(self) -> float:
        """Cost of the state."""
        return self.state.cost_ms

    @property
    def path(self) -> tuple[Step, ...]:
        """All steps from where the search began."""
        return tuple(one.step for one in self.trail if one.step is not None)

    @property
    def trail(self) -> tuple[Visited, ...]:
        """All states on the way, the first one and this one among them."""
        found: list[Visited] = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return tuple(reversed(found))

    def since(self, origin: Visited) -> tuple[Visited, ...]:
        """The states on the way here from one of them, without that one."""
        return self.trail[len(origin.trail) :]

    def has_passed(self, state: State) -> bool:
        """Whether a graph equal to that one is on the way here."""
        return state.graph in {one.state.graph for one in self.trail}


@dataclasses.dataclass(frozen=True)
class Budget:
    """When a search ends at the latest.

    Attributes:
      seconds: of wall time.
      expansions: rules applied whose result's cost was looked at.
    """

    seconds: float = math.inf
    expansions: float = math.inf


@dataclasses.dataclass(frozen=True)
class Progress:
    """What a search tells while it runs.

    Attributes:
      expansions: so far.
      seconds: so far.
      best_cost_ms: so far.
    """

    expansions: int
    seconds: float
    best_cost_ms: float


OnProgress = Callable[[Progress], None]

EXHAUSTED, INTERRUPTED = "exhausted", "interrupted"
OUT_OF_TIME, OUT_OF_EXPANSIONS = "out of time", "out of expansions"


@dataclasses.dataclass(frozen=True)
class Result:
    """What a search found.

    Attributes:
      method: its name.
      best: the cheapest state; of equal ones the first that was found.
      path: what was applied to get there.
      candidates: cheap states, the best one first; each of another cost.
      start_cost_ms: where it began.
      expansions: rules applied whose result's cost was looked at. A graph that the search knew
        already is not counted where the search notices (taso, beam).
      seconds: wall time, without those before it was resumed.
      stopped: "exhausted" (nothing is left that the method would try), "out of time", "out of
        expansions" or "interrupted".
      expansions_of_best: how many there were when the best was found.
    """

    method: str
    best: State
    path: tuple[Step, ...]
    candidates: tuple[Visited, ...]
    start_cost_ms: float
    expansions: int
    seconds: float
    stopped: str
    expansions_of_best: int

    @property
    def gain(self) -> float:
        """The part of the cost that is saved."""
        return 1 - self.best.cost_ms / self.start_cost_ms if self.start_cost_ms else 0.0
