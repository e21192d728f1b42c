"""Optimisation of one model: the road from its file to that of a faster one."""

from __future__ import annotations

import pathlib
import tempfile
import time
from collections.abc import Sequence

from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.execution.choosing import Choice
from environments.tensor_graphs.execution.inputs import NoInputsError
from environments.tensor_graphs.execution.sizes import NONE_OPEN
from environments.tensor_graphs.execution.trials import Trial
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.selection.selection import Selection
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.tensor_graphs.evaluating import bound_of
from tfrl_systems.systems.tensor_graphs.optimize.checking import why_not
from tfrl_systems.systems.tensor_graphs.optimize.measuring import Judge, limits_of
from tfrl_systems.systems.tensor_graphs.optimize.outcome import Outcome
from tfrl_systems.systems.tensor_graphs.optimize.quantizing import quantize
from tfrl_systems.systems.tensor_graphs.optimize.reading import read
from tfrl_systems.systems.tensor_graphs.optimize.request import Optimization
from tfrl_systems.systems.tensor_graphs.optimize.searching import (
    Proposals,
    nothing_to_search,
    search,
)
from tfrl_systems.systems.tensor_graphs.optimize.sizing import Task, make_task
from tfrl_systems.systems.tensor_graphs.optimize.writing import write_outcome

_BOUND_S = 60.0


def optimize(request: Optimization, reporter: Reporter) -> Outcome:
    """Write a faster model; if none is found, write a copy of the model.

    Raises:
      UserError: a file cannot be read or written, or an option cannot be used.
    """
    began_s = time.monotonic()
    reading = read(request)
    # What is written in the end is a copy of a candidate, which was run from its file.
    with tempfile.TemporaryDirectory(prefix="tfrl-") as name:
        try:
            task = make_task(request, reading, reporter, began_s)
        except NoInputsError as error:
            # A copy gets the sizes that --freeze asks for, so these must be known.
            if request.freeze:
                raise
            outcome = _untried(request, reading.original.graph, str(error))
        else:
            outcome = _find_faster(task, reading.inputs, pathlib.Path(name), reporter)
        return write_outcome(outcome, began_s)


def _find_faster(
    task: Task, own: Sequence[Trial], directory: pathlib.Path, reporter: Reporter
) -> Outcome:
    request = task.request
    account, quantized = None, None
    judge = Judge(task, directory, reporter)
    if reason := judge.why_not():
        proposals = _nothing(request, task.problem.graph)
    else:
        proposals = search(task, reporter, judge.look_at)
        reason = why_not(task, proposals)
    selection = Selection(None, reason, ())
    if not reason:
        selection, account = judge.leave_out(judge.select(proposals.states))
    if request.quantize:
        quantized = quantize(task, own, selection, directory, reporter)
    note = task.trials.note
    if note:
        note += "; --inputs FILE.npz compares on yours"
    return Outcome(
        request=request,
        before=task.problem.graph,
        proposals=proposals,
        selection=selection,
        choice=task.problem.choice,
        note="; ".join(filter(None, (note, *limits_of(selection)))),
        account=account,
        quantized=quantized,
        bound=bound_of(task.problem, _BOUND_S, reporter) if request.bound else None,
    )


def _untried(request: Optimization, graph: Graph, reason: str) -> Outcome:
    """Return the outcome for a model that cannot be run, so that nothing is tried."""
    selection = Selection(None, reason, ())
    return Outcome(request, graph, _nothing(request, graph), selection, Choice((NONE_OPEN,)))


def _nothing(request: Optimization, graph: Graph) -> Proposals:
    """Return what is proposed for a model on which no search is worth its time."""
    start = Engine((), AnalyticObjective()).start(graph)
    return Proposals(nothing_to_search(request.method, start), ())
