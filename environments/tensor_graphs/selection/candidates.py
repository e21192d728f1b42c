"""Candidates: rewritten models as a user would get them, and what is known of them."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import time
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from environments.errors import UserError
from environments.tensor_graphs.execution import equivalence
from environments.tensor_graphs.execution.backends import Backend
from environments.tensor_graphs.execution.equivalence import Equivalence, least_exact_type
from environments.tensor_graphs.execution.measuring import Comparison
from environments.tensor_graphs.execution.reference import Reference
from environments.tensor_graphs.execution.sizes import Sizes
from environments.tensor_graphs.execution.trials import Trial
from environments.tensor_graphs.onnx_io import save
from environments.tensor_graphs.search.results import Visited
from environments.tensor_graphs.selection.contributions import segments_of


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A rewritten model that may be better than the original.

    Attributes:
      equivalence: how its outputs compare with the original's; None if it could not be run.
      refusal: why it is refused; "" for a model that computes what the original does.
      screening: its first, short measurement against the original; None if it was not measured.
    """

    visited: Visited
    path: pathlib.Path
    equivalence: Equivalence | None
    refusal: str
    screening: Comparison | None = None


class Row(NamedTuple):
    """A comparison of a candidate with the original, both fully optimised by the backend.

    Attributes:
      is_single: whether both ran on one thread, where the others ran on several.
    """

    sizes: Sizes
    comparison: Comparison
    is_single: bool = False

    @property
    def where(self) -> str:
        """What distinguishes it from the others, for people to read."""
        return "1 thread" if self.is_single else str(self.sizes)


@dataclasses.dataclass(frozen=True)
class Measurement:
    """How fast a candidate runs, measured end to end against the original.

    Attributes:
      rows: the comparisons at each of the sizes, those that led the search first. The last one is
        that at which the candidate failed, if it did.
      at_best_levels: the comparison with each at its own best level of optimisation.
      original_level, candidate_level: name of the backend at the best level of each.
      unmeasured: sizes at which it is right, but for which there was no time.
    """

    rows: tuple[Row, ...]
    at_best_levels: Comparison
    original_level: str
    candidate_level: str
    unmeasured: tuple[Sizes, ...] = ()

    @property
    def fully_optimised(self) -> Comparison:
        """The comparison at the sizes that led the search."""
        return self.rows[0].comparison

    @property
    def slower(self) -> Row | None:
        """The first comparison in which the candidate is slower beyond A/A; None without one."""
        return next((row for row in self.rows if not is_no_slower(row.comparison)), None)

    @property
    def is_gain(self) -> bool:
        """Whether to prefer the candidate to the original."""
        is_faster = self.fully_optimised.is_faster and is_no_slower(self.at_best_levels)
        return is_faster and self.slower is None


def is_no_slower(comparison: Comparison) -> bool:
    """Whether the other model is not slower by more than two copies differ."""
    return comparison.ratio.value <= 1 + comparison.margin


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

    From the time `until_s` of `time.monotonic` on, one candidate that is right is enough. What
    `lossy` rules made is refused unless it was compared with float64. See `equivalence.check` for
    `below`.

    Yields:
      A candidate for each state, with a refusal if it does not compute what the original does.
    """
    has_right = False
    for number, visited in enumerate(proposed):
        if has_right and time.monotonic() > until_s:
            return
        candidate = Candidate(visited, directory / f"candidate-{number}.onnx", None, "")
        try:
            save(visited.state.graph, candidate.path)
        except UserError as error:
            yield dataclasses.replace(candidate, refusal=str(error))
            continue
        candidate = verified(reference, candidate, trials, on, below)
        is_exact = candidate.equivalence is None or candidate.equivalence.num_exact
        may_have_lost = any(step.rule in lossy for step in visited.path)
        if not candidate.refusal and not is_exact and may_have_lost:
            refusal = "it may lose digits, and float64 could not be computed to tell"
            candidate = dataclasses.replace(candidate, refusal=refusal)
        has_right |= not candidate.refusal
        yield candidate


def verified(
    reference: Reference,
    candidate: Candidate,
    trials: Sequence[Trial],
    on: Backend,
    below: Backend | None = None,
) -> Candidate:
    """Return a candidate that was compared with the original on further inputs."""
    try:
        equal = equivalence.check(
            reference,
            candidate.path,
            [trial.inputs for trial in trials],
            on=on,
            below=below,
            computed_in=least_exact_type(candidate.visited.trail[0].state.graph),
        )
    except UserError as error:
        return dataclasses.replace(candidate, refusal=str(error))
    refusal = "" if equal.is_equal else f"{equal.worst}, at {trials[equal.worst.trial].sizes}"
    if candidate.equivalence is not None:
        equal = equivalence.joined(candidate.equivalence, equal)
    return dataclasses.replace(candidate, equivalence=equal, refusal=refusal)
