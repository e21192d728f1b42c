"""What searches take and return: states, matches, steps, budgets, results."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

from environments.tensor_graphs.rewriting.engine import State
from environments.tensor_graphs.rewriting.matching import Match


class Step(NamedTuple):
    """A match as it is written down: the thesis's action (xfer, location), section 3.2.3."""

    rule: str
    location: tuple[int, ...]


def step_of(match: Match | Step) -> Step:
    """Return the step that applies a match."""
    return Step(match.rule, tuple(match.location))


@dataclasses.dataclass(frozen=True, eq=False)
class Visited:
    """A state and the path to it from where the search began.

    `match` was applied to `parent`; both are None at the start.
    """

    state: State
    parent: Visited | None = None
    match: Match | None = None

    @property
    def step(self) -> Step | None:
        """The step that led here from the parent; None at the start."""
        return None if self.match is None else step_of(self.match)

    @property
    def cost_ms(self) -> float:
        """Cost of the state."""
        return self.state.cost_ms

    @property
    def path(self) -> tuple[Step, ...]:
        """The steps from the start to this state."""
        return tuple(visited.step for visited in self.trail if visited.step is not None)

    @property
    def trail(self) -> tuple[Visited, ...]:
        """The states from the start to this one, both included."""
        trail: list[Visited] = [self]
        while trail[-1].parent is not None:
            trail.append(trail[-1].parent)
        return tuple(reversed(trail))

    def since(self, origin: Visited) -> tuple[Visited, ...]:
        """Return the states of the trail after one of them."""
        trail, here = [], self
        while here is not origin:
            assert here.parent is not None
            trail.append(here)
            here = here.parent
        return tuple(reversed(trail))

    def has_passed(self, state: State) -> bool:
        """Whether the trail contains a state with an equal graph."""
        return state.graph in {visited.state.graph for visited in self.trail}


@dataclasses.dataclass(frozen=True)
class Budget:
    """When a search ends at the latest.

    Attributes:
      seconds: wall time.
      expansions: number of expansions: matches applied to look at the cost of the result.
      patience_s: wall time after which the search ends if it has found nothing cheaper by then.
    """

    seconds: float = math.inf
    expansions: float = math.inf
    patience_s: float = math.inf


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a search has come: expansions, wall time and the cheapest state so far."""

    expansions: int
    seconds: float
    best: Visited

    @property
    def best_cost_ms(self) -> float:
        """Cost of the cheapest state so far."""
        return self.best.cost_ms


OnProgress = Callable[[Progress], None]

EXHAUSTED, INTERRUPTED = "exhausted", "interrupted"
OUT_OF_TIME, OUT_OF_EXPANSIONS = "out of time", "out of expansions"
OUT_OF_PATIENCE = "out of patience"


@dataclasses.dataclass(frozen=True)
class Result:
    """What a search found.

    Attributes:
      best: the cheapest state; of equally cheap ones the first that was found.
      candidates: the cheapest states with their paths, the best one first; their costs differ.
      expansions: searches that recognise graphs that they have seen (taso, beam) do not count those
        again.
      seconds: wall time, without that of an earlier search.
      stopped: why the search ended: "exhausted" (nothing was left to try), "out of time", "out of
        expansions", "out of patience" (nothing was found in much of the time) or "interrupted".
      expansions_of_best: number of expansions when the best state was found.
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
