"""Models of older opsets."""

from __future__ import annotations

import pathlib

import onnx

from environments.errors import UserError
from environments.tensor_graphs.onnx_io import scopes
from environments.tensor_graphs.onnx_io.header import opset_of
from environments.tensor_graphs.onnx_io.loading import embed

OLDEST_OPSET = 13
"""Older models are converted to this version of ONNX's operators."""


def converted(model: onnx.ModelProto, directory: pathlib.Path | None) -> onnx.ModelProto:
    """The model in the oldest opset that is understood, if it is of an older one.

    Args:
      model: a valid one: onnx's converter may crash on others.
      directory: where external data are.

    Raises:
      UserError: it cannot be converted.
    """
    opset = opset_of(model)
    if opset >= OLDEST_OPSET:
        return model
    reason = _obstacle(model, opset)
    if reason:
        raise _not_convertible(opset, reason)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if opset == 0:
        # It has only operators of other domains, whose meaning stays as it is.
        copy.opset_import.add(domain="", version=OLDEST_OPSET)
        return copy
    for tensor in copy.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            embed(tensor, directory)
    try:
        converted = onnx.version_converter.convert_version(copy, OLDEST_OPSET)
    except Exception as error:
        raise _not_convertible(opset, " ".join(str(error).split())[:200]) from None
    # The converter knows only types of tensors.
    graph, original = converted.graph, model.graph
    for infos, known in ((graph.input, original.input), (graph.output, original.output)):
        types = {one.name: one.type for one in known}
        for info in infos:
            if info.name in types:
                info.type.CopyFrom(types[info.name])
    return converted


def _obstacle(model: onnx.ModelProto, opset: int) -> str:
    """Why the converter would not do; "" where it does."""
    if opset and model.functions:
        return "it has functions of its own"
    names = {name for node in model.graph.node for _, name in scopes.operators(node)}
    if opset < 9 and "Scan" in names:
        return "Scan had another meaning then"
    return ""


def _not_convertible(opset: int, reason: str) -> UserError:
    return UserError(
        f"opset {opset} cannot be converted to {OLDEST_OPSET} ({reason}); export the model "
        f"again, for opset {OLDEST_OPSET} or newer"
    )
