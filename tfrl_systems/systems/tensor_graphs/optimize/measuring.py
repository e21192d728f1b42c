"""Measuring: which of the candidates that are right is faster, and what each of its rules saves."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

from environments.tensor_graphs.selection.candidates import Candidate
from environments.tensor_graphs.selection.leaving_out import Account, LeavingOut
from environments.tensor_graphs.selection.selection import (
    NO_TIME,
    Selection,
    Selector,
    first_right,
)
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.tensor_graphs.optimize.sizing import Task

# Share of the time that is left, for choosing a candidate.
_CHOOSING = 0.85


def select(task: Task, candidates: Sequence[Candidate], tell: Callable[[str], None]) -> Selection:
    """Choose the fastest of the candidates that are right; without measuring, the first of them."""
    if not task.request.measure:
        return first_right(task.reference, candidates, task.trials.others, task.levels[0])
    selection = _selector(task, tell, _CHOOSING).select(candidates)
    if NO_TIME in selection.reason:
        reason = f"{selection.reason}; give more --seconds"
        return dataclasses.replace(selection, reason=reason)
    return selection


def leave_out(
    task: Task, selection: Selection, directory: pathlib.Path, reporter: Reporter
) -> tuple[Selection, Account | None]:
    """Leave out what measured slower; measure what each of the other rules saves."""
    if selection.chosen is None or not task.request.measure:
        return selection, None
    with reporter.status() as tell:
        return LeavingOut(_selector(task, tell, 1.0), directory, task.below).run(selection)


def _selector(task: Task, tell: Callable[[str], None], share: float) -> Selector:
    return Selector(
        task.request.model,
        task.reference,
        task.trials,
        task.levels,
        task.request.final_seconds,
        tell,
        task.share_end_s(share),
        task.single,
    )


def limit_of(selection: Selection) -> str:
    """Return what the chosen candidate does not do as the model does; "" for nothing."""
    chosen = selection.chosen
    if chosen is None or chosen.equivalence is None or not chosen.equivalence.is_limited:
        return ""
    return (
        "at a size of 0 onnxruntime runs it only without its layout optimisation "
        "(ORT_ENABLE_EXTENDED); --strict leaves such changes out"
    )
