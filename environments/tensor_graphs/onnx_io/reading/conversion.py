"""Convert models of older opsets to the oldest one that the reader understands."""

from __future__ import annotations

import pathlib

import onnx

from environments.errors import UserError
from environments.tensor_graphs.onnx_io import scopes
from environments.tensor_graphs.onnx_io.header import opset_of
from environments.tensor_graphs.onnx_io.reading.graph_builder import OLDEST_OPSET
from environments.tensor_graphs.onnx_io.reading.loading import embed


def to_oldest_opset(model: onnx.ModelProto, directory: pathlib.Path | None) -> onnx.ModelProto:
    """Convert a model to `OLDEST_OPSET` if its opset is older.

    Args:
      model: a valid model; onnx's converter may crash on others. It is not changed.
      directory: the directory with the model's external data; None if there is none.

    Returns:
      The converted model, or the model itself if its opset is new enough.

    Raises:
      UserError: the model cannot be converted.
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
        # All operators belong to other domains, which are not converted.
        copy.opset_import.add(domain="", version=OLDEST_OPSET)
        return copy
    for tensor in copy.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            embed(tensor, directory)
    try:
        converted = onnx.version_converter.convert_version(copy, OLDEST_OPSET)
    except Exception as error:
        raise _not_convertible(opset, " ".join(str(error).split())[:200]) from None
    # The converter loses the types of inputs and outputs that are not tensors.
    graph, original = converted.graph, model.graph
    for infos, known in ((graph.input, original.input), (graph.output, original.output)):
        types = {one.name: one.type for one in known}
        for info in infos:
            if info.name in types:
                info.type.CopyFrom(types[info.name])
    return converted


def _obstacle(model: onnx.ModelProto, opset: int) -> str:
    """Say why onnx's converter cannot convert a model; "" if it can."""
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
