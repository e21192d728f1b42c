"""What the rules of a way contributed: as it was estimated, and as it was measured.

The way is cut where another rule takes over. The graph at each cut is written and measured against
the original; what a part contributed is the difference between its two ends. Rules that were taken
in turns several times have several parts, which are added up. Where rules alternate too often to
measure between them, because one makes the other possible, they are one part.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import pathlib
from collections.abc import Sequence

from environments.tensor_graphs.backends import Arrays, Backend
from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.measuring import FEW_PAIRS, Bench
from environments.tensor_graphs.onnx_io import save
from environments.tensor_graphs.search.results import Visited

_MOST_PARTS = 12

Part = tuple[Visited, ...]
"""States after consecutive steps."""


@dataclasses.dataclass(frozen=True)
class Share:
    """What a rule, or several that were taken in turns, contributed.

    Attributes:
      xfers: names of the rules; the one that was applied most often comes first.
      locations: where they were applied, in the order of the way.
      estimated_ms: that is saved, as estimated.
      measured: part of the original's time that is saved; None where it was not measured.
    """

    xfers: tuple[str, ...]
    locations: tuple[tuple[int, ...], ...]
    estimated_ms: float
    measured: float | None = None


def parts_of(visited: Visited, most: int = _MOST_PARTS) -> list[Part]:
    """The way to a state, cut where another rule takes over; without the state it begins with.

    Args:
      visited: where it ends.
      most: parts that there may be. If there are more, those that change least are joined to a
        neighbour.
    """
    steps = [one for one in visited.trail if one.step is not None]
    parts = [
        tuple(run) for _, run in itertools.groupby(steps, lambda one: one.step and one.step.xfer)
    ]
    while len(parts) > max(most, 1):
        saved_ms = [abs(_saved_ms(part)) for part in parts]
        pairs = [min(pair) for pair in itertools.pairwise(saved_ms)]
        first = pairs.index(min(pairs))
        parts[first : first + 2] = [parts[first] + parts[first + 1]]
    return parts


def shares(visited: Visited, ratios: Sequence[float] = ()) -> tuple[Share, ...]:
    """What each rule contributed, in the order in which they first were used.

    Args:
      visited: where the way ends.
      ratios: time of the graph at the end of each part over that of the original, as `measure`
        found them; none, where nothing was measured.
    """
    parts = parts_of(visited) if ratios else parts_of(visited, most=len(visited.trail))
    found: dict[frozenset[str], Share] = {}
    for number, part in enumerate(parts):
        steps = [one.step for one in part if one.step is not None]
        counts = collections.Counter(step.xfer for step in steps)
        xfers = tuple(xfer for xfer, _ in counts.most_common())
        known = found.get(frozenset(xfers), Share(xfers, (), 0.0))
        measured = known.measured
        if ratios:
            before = ratios[number - 1] if number else 1.0
            measured = (measured or 0.0) + before - ratios[number]
        found[frozenset(xfers)] = Share(
            known.xfers,
            known.locations + tuple(step.location for step in steps),
            known.estimated_ms + _saved_ms(part),
            measured,
        )
    return tuple(found.values())


def _saved_ms(part: Part) -> float:
    assert part[0].parent is not None
    return part[0].parent.cost_ms - part[-1].cost_ms


def measure(
    original: pathlib.Path,
    visited: Visited,
    inputs: Arrays,
    on: Backend,
    directory: pathlib.Path,
    seconds: float,
) -> list[float]:
    """Ratios for `shares`.

    Args:
      original: file of the model that the way begins with.
      visited: where it ends.
      inputs: to run all on.
      on: runs them.
      directory: for the files of the graphs in between.
      seconds: for each part.
    """
    ratios = []
    bench = Bench(original, inputs, on)
    for number, part in enumerate(parts_of(visited)):
        path = directory / f"part-{number}.onnx"
        graph = part[-1].state.graph
        assert isinstance(graph, Graph)
        save(graph, path)
        ratios.append(bench.compare(path, seconds=seconds, pairs=FEW_PAIRS).ratio.value)
        path.unlink()
    return ratios
