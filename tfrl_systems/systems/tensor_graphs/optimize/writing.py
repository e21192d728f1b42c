"""Writing: a faster model or a copy of the given one, and the report."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import time
from collections.abc import Mapping, Sequence

from environments import files
from environments.errors import UserError
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution.isolation import remote
from environments.tensor_graphs.search import INTERRUPTED
from tfrl_systems.systems.tensor_graphs.optimize.outcome import Outcome
from tfrl_systems.systems.tensor_graphs.optimize.page import make_page
from tfrl_systems.systems.tensor_graphs.optimize.task import data_of

Shapes = Mapping[str, Sequence[int]]
"""Shapes of a model's inputs, by name."""

# The fewer optimisations, the sooner a model is open; but some models open only with more of them.
_LEVELS = ("-disable", "-basic", "-extended", "")


def write_outcome(outcome: Outcome, began_s: float) -> Outcome:
    """Write all files of an outcome; return it with the seconds since `began_s`.

    Raises:
      UserError: a file cannot be written; see `write`.
    """
    request = outcome.request
    shapes = dict(outcome.choice.points[0].shapes) if request.freeze else None
    chosen = outcome.selection.chosen
    if outcome.quantized is not None and outcome.quantized.chosen is not None:
        write(outcome.quantized.chosen.path, request.place, request.model, shapes)
    elif chosen is not None:
        write(chosen.path, request.place, request.model)
    else:
        write(request.model, request.place, request.model, shapes)
    outcome = dataclasses.replace(outcome, seconds=time.monotonic() - began_s)
    if request.report is not None:
        files.replace(request.report, make_page(outcome).encode())
    # A search that was interrupted can go on from its checkpoint.
    if request.checkpoint is not None and outcome.result.stopped != INTERRUPTED:
        request.checkpoint.unlink(missing_ok=True)
    return outcome


def write(
    source: pathlib.Path,
    output: pathlib.Path,
    original: pathlib.Path,
    shapes: Shapes | None = None,
) -> None:
    """Copy a model's file and the one with its data, if it has one: both, or nothing.

    A file that is there is replaced, with the data that belong to it alone. `original` is the model
    that was given, `shapes` those of the copy's inputs; None leaves them as they are.

    Raises:
      UserError: a file cannot be written, or onnxruntime does not load what was written, although
        it loads what was given.
    """
    before = _own_data(output)
    onnx_io.copy(source, output, shapes, functools.partial(_check, original, output))
    if before:
        # What was given may be a copy of the output's earlier file, and use the same data.
        for path in before - _own_data(output) - data_of(original):
            path.unlink(missing_ok=True)


def _check(original: pathlib.Path, output: pathlib.Path, written: pathlib.Path) -> None:
    why = _why_not(written)
    if why and not _why_not(original):
        raise UserError(f"{output}: not written: {why.replace(str(written), 'the new model')}")


def _why_not(path: pathlib.Path) -> str:
    """Return why onnxruntime does not load a model at any level; "" if it does."""
    why = ""
    for level in _LEVELS:
        try:
            remote.isolated(f"onnxruntime{level}").open(path)
        except UserError as error:
            why = why or str(error)
        else:
            return ""
    return why


def _own_data(path: pathlib.Path) -> set[pathlib.Path]:
    """Return those of a model's files with data that have its name."""
    own = re.compile(re.escape(path.name) + r"\.[0-9a-f]{16}\.data")
    return {data for data in data_of(path) if own.fullmatch(data.name)}
