"""Measuring: which of the candidates that are right is faster, and what each of its rules saves."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import time
from collections.abc import Callable, Sequence

from environments.tensor_graphs.search import Visited
from environments.tensor_graphs.selection.candidates import Candidate
from environments.tensor_graphs.selection.leaving_out import Account, LeavingOut
from environments.tensor_graphs.selection.selection import (
    NO_TIME,
    Selection,
    Selector,
    expected_ratio,
    first_right,
)
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.tensor_graphs.optimize.checking import Checker
from tfrl_systems.systems.tensor_graphs.optimize.sizing import Task

# Share of the time that is left, for choosing a candidate; but a busy machine, which has used up
# the time by then, gets so many times a final measurement.
_CHOOSING, _GRANTED = 0.85, 2.0
# Share of the time that is left, for the first, short measurement of a candidate during the search.
_EARLY = 0.3


class Judge:
    """Checks and measures candidates: shortly while the search goes on, and in the end at length.

    They are written to the directory.
    """

    def __init__(self, task: Task, directory: pathlib.Path, reporter: Reporter) -> None:
        self._task, self._directory, self._reporter = task, directory, reporter
        self._checker = Checker(task, directory, reporter)
        self._early: list[Candidate] = []
        request = task.request
        self._selector = Selector(
            *(request.model, task.reference, task.trials, task.levels, request.final_seconds),
            single=task.single,
            optional=task.problem.choice.optional,
        )

    def why_not(self) -> str:
        """Return why nothing can be measured in the time that is left; "" where it can."""
        task = self._task
        self._selector.until_s = self._until_s(1.0)
        if not task.request.measure or task.trials.unseen or self._selector.affordable(1.0):
            return ""
        run_ms = 1e3 * self._selector.run_s
        return f"{NO_TIME}, since one run takes {run_ms:.0f} ms; give more --seconds"

    def look_at(self, visited: Visited) -> float:
        """Check and measure a state shortly, so that this is done however long the search takes.

        Returns:
          The share of the model's time that it is expected to take; infinite where it is wrong.
        """
        seen = {candidate.visited.state.graph for candidate in self._early}
        if self._task.trials.unseen or visited.state.graph in seen:
            return 1.0
        (candidate,) = self._checker.checked([visited], f"early-{len(self._early)}")
        self._selector.until_s = self._task.share_end_s(1.0)
        if not candidate.refusal and self._selector.affordable(_EARLY):
            candidate = self._selector.screened(candidate, self._task.share_end_s(_EARLY))
        self._early.append(candidate)
        return math.inf if candidate.refusal else expected_ratio(candidate)

    def select(self, proposed: Sequence[Visited]) -> Selection:
        """Choose the fastest state that is right; without measuring, the first that is right."""
        with self._reporter.status() as tell:
            tell("comparing the outputs of candidates")
            return self._select(self._checker.run(proposed, self._early), tell)

    def _select(self, candidates: Sequence[Candidate], tell: Callable[[str], None]) -> Selection:
        task = self._task
        if not task.request.measure:
            return first_right(task.reference, candidates, task.trials.others, task.levels[0])
        self._selector.until_s = self._until_s(_CHOOSING)
        self._selector.on_progress = tell
        selection = self._selector.select(candidates)
        if NO_TIME in selection.reason:
            reason = f"{selection.reason}; give more --seconds"
            return dataclasses.replace(selection, reason=reason)
        return selection

    def _until_s(self, share: float) -> float:
        """Return the end of a share of the time that is left, or of what is granted in any case."""
        granted_s = time.monotonic() + _GRANTED * self._task.request.final_seconds
        return max(self._task.share_end_s(share), granted_s)

    def leave_out(self, selection: Selection) -> tuple[Selection, Account | None]:
        """Leave out what measured slower; measure what each of the other rules saves."""
        if selection.chosen is None or not self._task.request.measure:
            return selection, None
        self._selector.until_s = self._task.share_end_s(1.0)
        with self._reporter.status() as self._selector.on_progress:
            return LeavingOut(self._selector, self._directory, self._task.below).run(selection)


def limits_of(selection: Selection) -> list[str]:
    """Return what the chosen candidate does not do as the model does, or may not, for people."""
    chosen, limits = selection.chosen, []
    if chosen is not None and chosen.equivalence is not None and chosen.equivalence.is_limited:
        limits.append(
            "at a size of 0 onnxruntime runs it only without its layout optimisation "
            "(ORT_ENABLE_EXTENDED); --strict leaves such changes out"
        )
    if chosen is not None and selection.measurement and selection.measurement.unmeasured:
        sizes = "; ".join(map(str, selection.measurement.unmeasured))
        limits.append(f"compared, but for want of time not measured at {sizes}: more --seconds")
    return limits
