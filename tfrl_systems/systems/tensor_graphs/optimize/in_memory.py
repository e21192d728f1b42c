"""Optimisation of a model that is in memory, not in a file."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import onnx

from environments.errors import UserError
from environments.tensor_graphs.onnx_io import scopes
from tfrl_systems.reporting import Reporter
from tfrl_systems.settings import make
from tfrl_systems.systems.tensor_graphs.optimize import optimization
from tfrl_systems.systems.tensor_graphs.optimize.page import Report
from tfrl_systems.systems.tensor_graphs.optimize.request import Optimization

# Protobuf cannot serialise more than 2 GB; weights of models near that go into a file of their own.
_MOST_BYTES = 1 << 30


def optimize(
    model: onnx.ModelProto,
    output: pathlib.Path | None,
    fields: Mapping[str, Any],
    reporter: Reporter,
) -> Report:
    """Optimise a model.

    Args:
      model: the model, with all of its weights; it does not change.
      output: file to write the faster model to as well; None for none.
      fields: further fields of `Optimization`.
      reporter: receives the progress.

    Returns:
      What `tfrl optimize --json` prints, with the graph's name as "model", and "optimized": the
      faster model, or a copy of the given one.

    Raises:
      UserError: the model lacks weights, or cannot be read.
    """
    _check(model)
    with tempfile.TemporaryDirectory(prefix="tfrl-") as name:
        directory = pathlib.Path(name)
        source = directory / "model.onnx"
        _save(model, source)
        target = output or directory / "optimized" / "model.onnx"
        source.with_name("optimized").mkdir()
        request = make(Optimization, {**fields, "model": source, "output": target})
        try:
            outcome = optimization.optimize(request, reporter)
        except UserError as error:
            raise type(error)(str(error).replace(str(source), "the model")) from None
        has_changed = outcome.has_gain or request.freeze
        optimized = onnx.load(target) if has_changed else _copy(model)
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


def _check(model: onnx.ModelProto) -> None:
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
    onnx.save(_copy(model), path, save_as_external_data=True, location="weights.bin")


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    return copied
