"""How much each rule on a path contributed: as estimated, and as measured.

The trail is cut wherever another rule takes over. The graph at the end of each segment is measured
against the original; a segment's contribution is the difference between its two ends. The segments
of one rule are added up. Where rules alternate too often to measure each segment, because one makes
the other possible, neighbouring segments are joined.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Sequence

from environments.tensor_graphs.execution.measuring import Comparison
from environments.tensor_graphs.search.results import Visited

_MAX_SEGMENTS = 12

Segment = tuple[Visited, ...]
"""The states after consecutive steps."""


@dataclasses.dataclass(frozen=True)
class Contribution:
    """What one rule contributed, or several rules whose segments were joined.

    Attributes:
      rules: the one that was applied most often comes first.
      states: the states that they led to, in the order of the path.
      estimated_saving_ms: cost that they saved, by the objective's estimate.
      measured_saving: part of the original's run time that they saved, in [-inf, 1]; None if it was
        not measured.
      margin: the saving that may be measured where there is none (A/A).
    """

    rules: tuple[str, ...]
    states: tuple[Visited, ...]
    estimated_saving_ms: float
    measured_saving: float | None = None
    margin: float = 0.0

    @property
    def locations(self) -> tuple[tuple[int, ...], ...]:
        """Where the rules were applied, in the order of the path."""
        return tuple(state.step.location for state in self.states if state.step is not None)

    @property
    def is_slower(self) -> bool:
        """Whether the model measured slower with these rules, by more than A/A."""
        return self.measured_saving is not None and self.measured_saving < -self.margin


def segments_of(visited: Visited, max_segments: int = _MAX_SEGMENTS) -> list[Segment]:
    """Cut the trail to a state wherever another rule takes over.

    If there are more than `max_segments`, those that change the cost least are joined to a
    neighbour. The state where the trail begins is in none of them.
    """
    steps = [state for state in visited.trail if state.step is not None]
    segments = [
        tuple(run)
        for _, run in itertools.groupby(steps, lambda state: state.step and state.step.rule)
    ]
    while len(segments) > max(max_segments, 1):
        saved_ms = [abs(_saved_ms(segment)) for segment in segments]
        pairs = [min(pair) for pair in itertools.pairwise(saved_ms)]
        first = pairs.index(min(pairs))
        segments[first : first + 2] = [segments[first] + segments[first + 1]]
    return segments


def contributions(
    visited: Visited, measured: Sequence[Comparison] = ()
) -> tuple[Contribution, ...]:
    """Add up what each rule contributed, in the order in which the rules were first used.

    `measured` has, for each of `segments_of(visited)`, the graph at its end against the original;
    nothing if nothing was measured.
    """
    segments = segments_of(visited) if measured else segments_of(visited, len(visited.trail))
    groups: dict[frozenset[str], Contribution] = {}
    for number, segment in enumerate(segments):
        steps = [state.step for state in segment if state.step is not None]
        counts = collections.Counter(step.rule for step in steps)
        rules = tuple(rule for rule, _ in counts.most_common())
        group = groups.get(frozenset(rules), Contribution(rules, (), 0.0))
        saving, margin = group.measured_saving, group.margin
        if measured:
            ends = measured[max(number - 1, 0) : number + 1]
            before = ends[0].ratio.value if number else 1.0
            saving = (saving or 0.0) + before - ends[-1].ratio.value
            margin = max(margin, *(end.margin for end in ends), 0.0)
        groups[frozenset(rules)] = Contribution(
            group.rules,
            group.states + segment,
            group.estimated_saving_ms + _saved_ms(segment),
            saving,
            margin,
        )
    return tuple(groups.values())


def shares(groups: Sequence[Contribution]) -> tuple[Contribution, ...]:
    """Join each contribution that measured slower to the one that saves most.

    Such a contribution was not left out because the graph is slower without it: what saves time
    needs it.
    """
    groups = list(groups)
    while len(groups) > 1 and (
        slower := next((group for group in groups if group.is_slower), None)
    ):
        others = [group for group in groups if group is not slower]
        best = max(others, key=lambda group: group.measured_saving or 0.0)
        joined = Contribution(
            best.rules + tuple(rule for rule in slower.rules if rule not in best.rules),
            best.states + slower.states,
            best.estimated_saving_ms + slower.estimated_saving_ms,
            (best.measured_saving or 0.0) + (slower.measured_saving or 0.0),
            max(best.margin, slower.margin),
        )
        groups = [joined if group is best else group for group in others]
    return tuple(groups)


def _saved_ms(segment: Segment) -> float:
    assert segment[0].parent is not None
    return segment[0].parent.cost_ms - segment[-1].cost_ms
