"""Candidates: rewritten models as a user would get them, compared with the original."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import time
from collections.abc import Collection, Iterator, Sequence

from environments.errors import UserError
from environments.tensor_graphs.execution import equivalence
from environments.tensor_graphs.execution.backends import Backend
from environments.tensor_graphs.execution.equivalence import Equivalence, least_exact_type
from environments.tensor_graphs.execution.measuring import Comparison
from environments.tensor_graphs.execution.reference import Reference
from environments.tensor_graphs.execution.trials import Trial
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.onnx_io import save
from environments.tensor_graphs.search.results import Visited
from environments.tensor_graphs.selection.contributions import segments_of


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


def worth_measuring(visited: Visited, max_states: int = 5) -> list[Visited]:
    """Return the states on a trail that are worth measuring, the last one first.

    A rule may save less than it was estimated to save. So besides the last state, those are
    returned after which another rule takes over.
    """
    ends = [segment[-1] for segment in segments_of(visited, max_states)]
    states = {state.state.graph: state for state in reversed(ends)}
    return list(states.values())


def verify(
    reference: Reference,
    proposed: Sequence[Visited],
    trials: Sequence[Trial],
    directory: pathlib.Path,
    on: Backend,
    until_s: float = math.inf,
    lossy: Collection[str] = (),
    below: Backend | None = None,
) -> Iterator[Candidate]:
    """Write each proposed graph to a file, and compare its outputs with the original's.

    Args:
      reference: runs the original model.
      proposed: states whose graphs were made from it.
      trials: the inputs to compare the models on.
      directory: where the files are written.
      on: the backend that runs the models.
      until_s: from this time of `time.monotonic` on, one candidate that is right is enough.
      lossy: names of rules that may lose digits; what they made is refused unless it was compared
        with float64.
      below: see `equivalence.check`.

    Yields:
      A candidate for each state, with a refusal if it does not compute what the original does.
    """
    has_right = False
    for number, visited in enumerate(proposed):
        if has_right and time.monotonic() > until_s:
            return
        path = directory / f"candidate-{number}.onnx"
        graph = visited.state.graph
        assert isinstance(graph, Graph)
        candidate = Candidate(visited, path, None, "")
        try:
            save(graph, path)
        except UserError as error:
            yield dataclasses.replace(candidate, refusal=str(error))
            continue
        checked = verified(reference, candidate, trials, on, below)
        equivalence = checked.equivalence
        if (
            equivalence
            and not checked.refusal
            and not equivalence.num_exact
            and _uses(visited, lossy)
        ):
            refusal = "it may lose digits, and float64 could not be computed to tell"
            checked = dataclasses.replace(checked, refusal=refusal)
        has_right |= not checked.refusal
        yield checked


def _uses(visited: Visited, rules: Collection[str]) -> bool:
    return any(state.step is not None and state.step.rule in rules for state in visited.trail)


def verified(
    reference: Reference,
    candidate: Candidate,
    trials: Sequence[Trial],
    on: Backend,
    below: Backend | None = None,
) -> Candidate:
    """Return a candidate that was compared with the original on further inputs."""
    try:
        inputs = [trial.inputs for trial in trials]
        start = candidate.visited.trail[0].state.graph
        assert isinstance(start, Graph)
        least_exact = least_exact_type(start)
        equal = equivalence.check(
            reference, candidate.path, inputs, on=on, below=below, computed_in=least_exact
        )
    except UserError as error:
        return dataclasses.replace(candidate, refusal=str(error))
    refusal = "" if equal.is_equal else f"{equal.worst}, at {trials[equal.worst.trial].sizes}"
    if candidate.equivalence is not None:
        equal = equivalence.joined(candidate.equivalence, equal)
    return dataclasses.replace(candidate, equivalence=equal, refusal=refusal)
