"""Which of several models made from one is worth having: right first, then measured to be faster.

A search minimises an estimate. What it found is therefore a proposal: each candidate is written to
a file as a user would get it, run on inputs beside the original, and refused where an output
differs. Those that are left are measured end to end against the original, first for a short time,
then, in the order of what came out, for as long as it takes to be sure. One is chosen only if it is

  - faster than the original, both fully optimised by the backend, by more than two copies of the
    original differ (A/A);
  - not slower than the original where each is run at the level of optimisation that suits it best:
    a user who knows that onnxruntime does a model no good loses nothing either.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence

from environments.errors import UserError
from environments.tensor_graphs import equivalence
from environments.tensor_graphs.accounting import parts_of
from environments.tensor_graphs.backends import Arrays, Backend
from environments.tensor_graphs.equivalence import Equivalence
from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.measuring import FEW_PAIRS, Bench, Comparison
from environments.tensor_graphs.onnx_io import save
from environments.tensor_graphs.search.results import Visited

_SCREENING = 0.1
_NUM_FINALISTS = 3

Tell = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A graph that may be better than the one it was made from.

    Attributes:
      visited: the graph and the way to it.
      path: the file it is in.
      equivalence: what its outputs are; None where it could not be run.
      refused: why it is not a candidate any more; "" for one that computes what it should.
      screened: measured against the original for a short time; None where nothing was measured.
    """

    visited: Visited
    path: pathlib.Path
    equivalence: Equivalence | None
    refused: str
    screened: Comparison | None = None


@dataclasses.dataclass(frozen=True)
class Measured:
    """A candidate beside the original, end to end.

    Attributes:
      full: both fully optimised by the backend.
      best: each at its best level.
      level: the original's best level, by the name of the backend.
      own_level: the candidate's.
    """

    full: Comparison
    best: Comparison
    level: str
    own_level: str

    @property
    def is_gain(self) -> bool:
        """Whether to prefer it to the original."""
        return self.full.is_faster and self.best.ratio.value <= 1 + self.best.margin


@dataclasses.dataclass(frozen=True)
class Selection:
    """What the selection came to.

    Attributes:
      chosen: the candidate to keep; None where none gains.
      reason: why none does; "" where one does.
      candidates: all, in the order of the search.
      measured: of the chosen one, or of the one that came nearest; None without measurements.
    """

    chosen: Candidate | None
    reason: str
    candidates: tuple[Candidate, ...]
    measured: Measured | None = None


def proposals(visited: Visited, most: int = 5) -> list[Visited]:
    """States on a way that are worth measuring, the last one first.

    What a rule saves may not be what it was estimated to save: so those where another rule takes
    over are tried, too.

    Args:
      visited: where the way ends.
      most: how many at most.
    """
    ends = [part[-1] for part in parts_of(visited, most)]
    found = {one.state.graph: one for one in reversed(ends)}
    return list(found.values())


def verify(
    original: pathlib.Path,
    proposed: Sequence[Visited],
    trials: Sequence[Arrays],
    directory: pathlib.Path,
    on: Backend,
) -> Iterator[Candidate]:
    """Writes each proposal to a file, and runs it beside the original.

    Args:
      original: its file.
      proposed: states whose graphs were made from it.
      trials: inputs to compare them on.
      directory: for the files.
      on: runs them.
    """
    if not proposed:
        return
    opened = on.open(original)
    for number, visited in enumerate(proposed):
        path = directory / f"candidate-{number}.onnx"
        graph = visited.state.graph
        assert isinstance(graph, Graph)
        try:
            save(graph, path)
            found = equivalence.check(opened, path, trials, on=on)
        except UserError as error:
            yield Candidate(visited, path, None, str(error))
            continue
        refused = "" if found.is_equal else str(found.worst)
        yield Candidate(visited, path, found, refused)


def select(
    original: pathlib.Path,
    candidates: Sequence[Candidate],
    inputs: Arrays,
    levels: Sequence[Backend],
    seconds: float,
    tell: Tell = lambda _: None,
) -> Selection:
    """Measures candidates that compute what they should, and chooses one or none.

    Args:
      original: its file.
      candidates: from `verify`.
      inputs: to run all on.
      levels: backends of the same kind: fully optimised first, then those that do less.
      seconds: for each of the two last measurements; the others take less.
      tell: is told what is being done.
    """
    right = [one for one in candidates if not one.refused]
    if not right:
        return Selection(None, _why_none(candidates), tuple(candidates))
    short_s = _SCREENING * seconds
    tell("measuring the original at each level of optimisation")
    bench = Bench(original, inputs, levels[0])
    best = best_level(bench, original, levels, short_s)
    screened = []
    for number, one in enumerate(right):
        tell(f"measuring candidate {number + 1} of {len(right)}")
        found = bench.compare(one.path, seconds=short_s, pairs=FEW_PAIRS)
        screened.append(dataclasses.replace(one, screened=found))
    by_path = {one.path: one for one in screened}
    everyone = tuple(by_path.get(one.path, one) for one in candidates)
    finalists = sorted(screened, key=lambda one: one.screened.ratio.value if one.screened else 1)
    nearest: Measured | None = None
    for one in finalists[:_NUM_FINALISTS]:
        tell(f"measuring the fastest candidate: {seconds:.0f} s against each level")
        measured = _measure(bench, original, one.path, inputs, levels, best, seconds)
        if measured.is_gain:
            return Selection(one, "", everyone, measured)
        nearest = nearest or measured
    assert nearest is not None
    return Selection(None, _why_not(nearest), everyone, nearest)


def best_level(
    bench: Bench, model: pathlib.Path, levels: Sequence[Backend], seconds: float
) -> Backend:
    """The level at which a model is fastest; the first one unless another is for certain."""
    best, least = levels[0], 1.0
    for level in levels[1:]:
        found = bench.compare(model, other_backend=level, seconds=seconds, pairs=FEW_PAIRS)
        if found.is_faster and found.ratio.value < least:
            best, least = level, found.ratio.value
    return best


def _measure(
    bench: Bench,
    original: pathlib.Path,
    path: pathlib.Path,
    inputs: Arrays,
    levels: Sequence[Backend],
    best: Backend,
    seconds: float,
) -> Measured:
    full = bench.compare(path, seconds=seconds)
    own = best_level(Bench(path, inputs, levels[0]), path, levels, _SCREENING * seconds)
    if best.name == own.name == levels[0].name:
        return Measured(full, full, best.name, own.name)
    at_best = Bench(original, inputs, best).compare(path, other_backend=own, seconds=seconds)
    return Measured(full, at_best, best.name, own.name)


def _why_none(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return "no rule lowers the estimated cost"
    return f"no candidate computes what the model does ({candidates[0].refused})"


def _why_not(measured: Measured) -> str:
    if not measured.full.is_faster:
        return (
            f"the best candidate takes {measured.full.ratio} of the model's time, and two copies "
            f"of the model {measured.full.same} of each other's"
        )
    return (
        f"the best candidate takes {measured.best.ratio} of the time of the model at "
        f"{measured.level}, its best level"
    )
