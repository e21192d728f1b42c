"""Choose which of several rewritten models to keep, if any: it must be right, then measured faster.

A search minimises an estimate, so what it finds is only proposed. Each candidate is written to a
file as a user would get it, run beside the original on several inputs, and refused if an output
differs. The others are measured end to end against the original: all of them for a short time, then
the fastest ones for as long as it takes to be sure. A candidate is chosen only if it is

  - faster than the original, both fully optimised by the backend, by more than two copies of the
    original differ (A/A);
  - not slower than the original where each runs at the level of optimisation that suits it best, so
    that users who know that onnxruntime's optimisations hurt their model lose nothing either.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence

from environments.errors import UserError
from environments.tensor_graphs.execution import equivalence
from environments.tensor_graphs.execution.backends import Arrays, Backend
from environments.tensor_graphs.execution.equivalence import Equivalence
from environments.tensor_graphs.execution.measuring import FEW_PAIRS, Bench, Comparison
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.onnx_io import save
from environments.tensor_graphs.search.results import Visited
from environments.tensor_graphs.selection.contributions import segments_of

_SCREENING = 0.1
"""Part of the time of a final measurement that each of the first, short ones takes."""

_NUM_FINALISTS = 3

OnProgress = Callable[[str], None]
"""Called with a line that says what is being done."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A rewritten model that may be better than the original.

    Attributes:
      visited: its graph and the path to it.
      path: its file.
      equivalence: how its outputs compare with the original's; None if it could not be run.
      refusal: why it is refused; "" for a model that computes what the original does.
      screening: its first, short measurement against the original; None if it was not measured.
    """

    visited: Visited
    path: pathlib.Path
    equivalence: Equivalence | None
    refusal: str
    screening: Comparison | None = None


@dataclasses.dataclass(frozen=True)
class Measurement:
    """How fast a candidate runs, measured end to end against the original.

    Attributes:
      fully_optimised: the comparison with both fully optimised by the backend.
      at_best_levels: the comparison with each at its own best level of optimisation.
      original_level: name of the backend at the original's best level.
      candidate_level: name of the backend at the candidate's best level.
    """

    fully_optimised: Comparison
    at_best_levels: Comparison
    original_level: str
    candidate_level: str

    @property
    def is_gain(self) -> bool:
        """Whether to prefer the candidate to the original."""
        best = self.at_best_levels
        return self.fully_optimised.is_faster and best.ratio.value <= 1 + best.margin


@dataclasses.dataclass(frozen=True)
class Selection:
    """The result of a selection.

    Attributes:
      chosen: the candidate to keep; None if none gains.
      reason: why none is chosen; "" if one is.
      candidates: all candidates, in the order in which they were given.
      measurement: that of the chosen candidate, else of the fastest one; None if nothing was
        measured.
    """

    chosen: Candidate | None
    reason: str
    candidates: tuple[Candidate, ...]
    measurement: Measurement | None = None


def worth_measuring(visited: Visited, max_states: int = 5) -> list[Visited]:
    """Return the states on a trail that are worth measuring, the last one first.

    A rule may save less than it was estimated to save. So besides the last state, those are
    returned after which another rule takes over.

    Args:
      visited: the state where the trail ends.
      max_states: number of states at most.
    """
    ends = [segment[-1] for segment in segments_of(visited, max_states)]
    found = {one.state.graph: one for one in reversed(ends)}
    return list(found.values())


def verify(
    original: pathlib.Path,
    proposed: Sequence[Visited],
    trials: Sequence[Arrays],
    directory: pathlib.Path,
    on: Backend,
) -> Iterator[Candidate]:
    """Write each proposed graph to a file, and compare its outputs with the original's.

    Args:
      original: file of the original model.
      proposed: states whose graphs were made from it.
      trials: the inputs to compare the models on.
      directory: where the files are written.
      on: the backend that runs the models.

    Yields:
      A candidate for each state, with a refusal if it does not compute what the original does.
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
        refusal = "" if found.is_equal else str(found.worst)
        yield Candidate(visited, path, found, refusal)


def select(
    original: pathlib.Path,
    candidates: Sequence[Candidate],
    inputs: Arrays,
    levels: Sequence[Backend],
    seconds: float,
    on_progress: OnProgress = lambda _: None,
) -> Selection:
    """Measure the candidates that were not refused, and choose one or none.

    Args:
      original: file of the original model.
      candidates: the candidates that `verify` yields.
      inputs: what all models are run on.
      levels: the backend at each of its levels of optimisation, the full one first.
      seconds: wall time of each final measurement; the others take a tenth of it.
      on_progress: called with what is being done.
    """
    right = [one for one in candidates if not one.refusal]
    if not right:
        return Selection(None, _why_none(candidates), tuple(candidates))
    short_s = _SCREENING * seconds
    on_progress("measuring the original at each level of optimisation")
    bench = Bench(original, inputs, levels[0])
    best = best_level(bench, original, levels, short_s)
    screened = []
    for number, one in enumerate(right):
        on_progress(f"measuring candidate {number + 1} of {len(right)}")
        screening = bench.compare(one.path, seconds=short_s, pairs=FEW_PAIRS)
        screened.append(dataclasses.replace(one, screening=screening))
    by_path = {one.path: one for one in screened}
    everyone = tuple(by_path.get(one.path, one) for one in candidates)
    finalists = sorted(screened, key=lambda one: one.screening.ratio.value if one.screening else 1)
    fastest: Measurement | None = None
    for one in finalists[:_NUM_FINALISTS]:
        on_progress(f"measuring the fastest candidate: {seconds:.0f} s against each level")
        found = _measure(bench, original, one.path, inputs, levels, best, seconds)
        if found.is_gain:
            return Selection(one, "", everyone, found)
        fastest = fastest or found
    assert fastest is not None
    return Selection(None, _why_not(fastest), everyone, fastest)


def best_level(
    bench: Bench, model: pathlib.Path, levels: Sequence[Backend], seconds: float
) -> Backend:
    """Return the level of optimisation at which a model runs fastest.

    Args:
      bench: measures against the model at the first level.
      model: file of the model.
      levels: the backend at each level.
      seconds: wall time of each measurement.

    Returns:
      The first level, unless another one is certainly faster.
    """
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
) -> Measurement:
    full = bench.compare(path, seconds=seconds)
    own = best_level(Bench(path, inputs, levels[0]), path, levels, _SCREENING * seconds)
    if best.name == own.name == levels[0].name:
        return Measurement(full, full, best.name, own.name)
    at_best = Bench(original, inputs, best).compare(path, other_backend=own, seconds=seconds)
    return Measurement(full, at_best, best.name, own.name)


def _why_none(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return "no rule lowers the estimated cost"
    return f"no candidate computes what the model does ({candidates[0].refusal})"


def _why_not(found: Measurement) -> str:
    if not found.fully_optimised.is_faster:
        return (
            f"the best candidate takes {found.fully_optimised.ratio} of the model's time, and two "
            f"copies of the model {found.fully_optimised.same} of each other's"
        )
    return (
        f"the best candidate takes {found.at_best_levels.ratio} of the time of the model at "
        f"{found.original_level}, its best level"
    )
