"""Optimisation of one model: the road from its file, or from memory, to a faster one."""

from __future__ import annotations

import copy
import dataclasses
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import onnx

from environments.errors import UserError
from environments.isolation import guardian
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.execution.choosing import Choice
from environments.tensor_graphs.execution.inputs import NoInputsError
from environments.tensor_graphs.execution.sizes import NONE_OPEN
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.onnx_io import scopes
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.selection.selection import Selection
from tfrl_systems.reporting import Reporter
from tfrl_systems.settings import make
from tfrl_systems.systems.tensor_graphs.evaluating import bound_of
from tfrl_systems.systems.tensor_graphs.optimize.judging import Judge, limits_of, why_not
from tfrl_systems.systems.tensor_graphs.optimize.outcome import Outcome
from tfrl_systems.systems.tensor_graphs.optimize.page import Report
from tfrl_systems.systems.tensor_graphs.optimize.quantizing import quantize
from tfrl_systems.systems.tensor_graphs.optimize.request import Optimization
from tfrl_systems.systems.tensor_graphs.optimize.searching import (
    Proposals,
    nothing_to_search,
    search,
)
from tfrl_systems.systems.tensor_graphs.optimize.task import Task, make_task, read
from tfrl_systems.systems.tensor_graphs.optimize.writing import write_outcome

_BOUND_S = 60.0
# Protobuf cannot serialise more than 2 GB; weights of models near that go into a file of their own.
_MOST_BYTES = 1 << 30


def optimize(request: Optimization, reporter: Reporter) -> Outcome:
    """Write a faster model; if none is found, write a copy of the model.

    Raises:
      UserError: a file cannot be read or written, or an option cannot be used.
    """
    began_s = time.monotonic()
    reading = read(request)
    # What is written in the end is a copy of a candidate, which was run from its file. Each is as
    # large as the model, so none may stay, even if the system kills this process for its memory.
    with guardian.make_directory() as name:
        try:
            task = make_task(request, reading, reporter, began_s)
        except NoInputsError as error:
            # A copy gets the sizes that --freeze asks for, so these must be known.
            if request.freeze:
                raise
            outcome = _untried(request, reading.original.graph, str(error))
        else:
            outcome = _find_faster(task, pathlib.Path(name), reporter)
        return write_outcome(outcome, began_s)


def optimize_in_memory(
    model: onnx.ModelProto,
    output: pathlib.Path | None,
    fields: Mapping[str, Any],
    reporter: Reporter,
) -> Report:
    """Optimise a model that is in memory, with all of its weights, and does not change.

    The faster model is written to `output` as well, if that is given. `fields` are further ones of
    `Optimization`.

    Returns:
      What `tfrl optimize --json` prints, with the graph's name as "model", and "optimized": the
      faster model, or a copy of the given one.

    Raises:
      UserError: the model lacks weights, or cannot be read.
    """
    _check_weights(model)
    with guardian.make_directory() as name:
        directory = pathlib.Path(name)
        source = directory / "model.onnx"
        _save(model, source)
        target = output or directory / "optimized" / "model.onnx"
        source.with_name("optimized").mkdir()
        request = make(Optimization, {**fields, "model": source, "output": target})
        try:
            outcome = optimize(request, reporter)
        except UserError as error:
            raise type(error)(str(error).replace(str(source), "the model")) from None
        has_changed = outcome.has_gain or request.freeze
        optimized = onnx.load(target) if has_changed else copy.deepcopy(model)
    # The page names files that are there when it is read.
    named = pathlib.Path(f"{pathlib.PurePosixPath(model.graph.name).name or 'model'}.onnx")
    request = dataclasses.replace(request, model=named, output=output)
    report = Report(dataclasses.replace(outcome, request=request))
    report.update(
        model=model.graph.name,
        output=None if output is None else str(output),
        optimized=optimized,
    )
    return report


def _find_faster(task: Task, directory: pathlib.Path, reporter: Reporter) -> Outcome:
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
        quantized = quantize(task, selection, directory, reporter)
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


def _check_weights(model: onnx.ModelProto) -> None:
    for tensor in scopes.model_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise UserError(
                f"the model: expected all weights in it, found {tensor.name!r} in another file; "
                "give the path of its file, or load it with its external data"
            )


def _save(model: onnx.ModelProto, path: pathlib.Path) -> None:
    if model.ByteSize() <= _MOST_BYTES:
        path.write_bytes(model.SerializeToString())
        return
    # This moves the weights out of the model that it is given.
    copied = copy.deepcopy(model)
    onnx.save(copied, path, save_as_external_data=True, location="weights.bin")
