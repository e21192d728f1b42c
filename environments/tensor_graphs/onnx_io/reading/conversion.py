"""Convert models of older opsets to the oldest one that the reader understands."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence

import onnx

from environments.errors import UserError
from environments.tensor_graphs.onnx_io import scopes
from environments.tensor_graphs.onnx_io.header import copy_field, opset_of
from environments.tensor_graphs.onnx_io.reading.graph_builder import OLDEST_OPSET
from environments.tensor_graphs.onnx_io.reading.loading import embed

_MAX_ELEMENTS = 1024


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
    copy, weights = _without_weights(model, directory)
    given = [one.name for one in model.graph.input]
    if opset == 0:
        # All operators belong to other domains, which are not converted.
        copy.opset_import.add(domain="", version=OLDEST_OPSET)
        return _with_weights(copy, weights, given)
    try:
        converted = onnx.version_converter.convert_version(copy, OLDEST_OPSET)
    except Exception as error:
        raise _not_convertible(opset, " ".join(str(error).split())[:200]) from None
    converted = _with_weights(converted, weights, given)
    # The converter loses the types of inputs and outputs that are not tensors.
    graph, original = converted.graph, model.graph
    for infos, known in ((graph.input, original.input), (graph.output, original.output)):
        types = {one.name: one.type for one in known}
        for info in infos:
            if info.name in types:
                info.type.CopyFrom(types[info.name])
    return converted


def _without_weights(
    model: onnx.ModelProto, directory: pathlib.Path | None
) -> tuple[onnx.ModelProto, list[onnx.TensorProto]]:
    """Return a copy of a model in which large weights are inputs, and these weights.

    The converter serialises the model, so the weights could be too large for it. It needs the
    values of short lists (sizes, axes).
    """
    copy = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            copy_field(copy, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            copy_field(copy.graph, field.name, value)
    given = {one.name for one in model.graph.input}
    weights = []
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) > _MAX_ELEMENTS:
            weights.append(tensor)
            if tensor.name not in given:
                info = onnx.helper.make_tensor_value_info(
                    tensor.name, tensor.data_type, tensor.dims
                )
                copy.graph.input.append(info)
            continue
        copy.graph.initializer.append(tensor)
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            embed(copy.graph.initializer[-1], directory)
    return copy, weights


def _with_weights(
    copy: onnx.ModelProto, weights: Sequence[onnx.TensorProto], given: Sequence[str]
) -> onnx.ModelProto:
    """Add weights to a model, in place; they are inputs only if they were `given` as such."""
    names = {one.name for one in weights} - set(given)
    kept = [one for one in copy.graph.input if one.name not in names]
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    copy.graph.initializer.extend(weights)
    return copy


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
