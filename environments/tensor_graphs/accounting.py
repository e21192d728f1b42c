"""What each rule of a way contributed: as it was estimated, and as it was measured.

The way is cut where another rule takes over. The graph at each cut is written and measured against
the original; what a part contributed is the difference between its two ends. Rules that were taken
in turns several times have several parts, which are added up.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence

from environments.tensor_graphs.backends import Arrays, Backend
from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.measuring import compare
from environments.tensor_graphs.onnx_io import save
from environments.tensor_graphs.search.results import Visited

_MOST_PARTS = 16


@dataclasses.dataclass(frozen=True)
class Share:
    """What a rule contributed.

    Attributes:
      xfer: name of the rule.
      locations: where it was applied, in the order of the way.
      estimated_ms: that it saves, as estimated.
      measured: part of the original's time that it saves; None where it was not measured.
    """

    xfer: str
    locations: tuple[tuple[int, ...], ...]
    estimated_ms: float
    measured: float | None = None


def parts_of(visited: Visited) -> list[tuple[Visited, ...]]:
    """The way to a state, cut where another rule takes over; without the state it begins with."""
    steps = [one for one in visited.trail if one.step is not None]
    return [
        tuple(group)
        for _, group in itertools.groupby(steps, lambda one: one.step and one.step.xfer)
    ]


def shares(visited: Visited, ratios: Sequence[float] = ()) -> tuple[Share, ...]:
    """What each rule contributed, in the order in which they first were used.

    Args:
      visited: where the way ends.
      ratios: time of the graph at the end of each part over that of the original, as `measure`
        found them; none, where nothing was measured.
    """
    found: dict[str, Share] = {}
    before = 1.0
    for number, part in enumerate(parts_of(visited)):
        origin, step = part[0].parent, part[0].step
        assert origin is not None and step is not None
        measured = before - ratios[number] if ratios else None
        before = ratios[number] if ratios else 1.0
        known = found.get(step.xfer, Share(step.xfer, (), 0.0, 0.0 if ratios else None))
        locations = tuple(one.step.location for one in part if one.step is not None)
        found[step.xfer] = Share(
            step.xfer,
            known.locations + locations,
            known.estimated_ms + origin.cost_ms - part[-1].cost_ms,
            None if measured is None or known.measured is None else known.measured + measured,
        )
    return tuple(found.values())


def measure(
    original: pathlib.Path,
    visited: Visited,
    inputs: Arrays,
    on: Backend,
    directory: pathlib.Path,
    seconds: float,
) -> list[float]:
    """Ratios for `shares`; none, where a way has too many parts to measure them all.

    Args:
      original: file of the model that the way begins with.
      visited: where it ends.
      inputs: to run all on.
      on: runs them.
      directory: for the files of the graphs in between.
      seconds: for each part.
    """
    parts = parts_of(visited)
    if len(parts) > _MOST_PARTS:
        return []
    ratios = []
    for number, part in enumerate(parts):
        path = directory / f"part-{number}.onnx"
        graph = part[-1].state.graph
        assert isinstance(graph, Graph)
        save(graph, path)
        ratios.append(compare(original, path, inputs, on, seconds=seconds).ratio.value)
        path.unlink()
    return ratios
