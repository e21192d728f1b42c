"""Make a model of a body, to read it like any model; its captured values become inputs.

The types of a body's own inputs are those that hold in every iteration. A file may give the shape
of a Loop's state for the first iteration alone, so sizes of a state are kept only if the body
returns the same sizes again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from environments.tensor_graphs.graph.nodes import TensorType
from environments.tensor_graphs.onnx_io.header import UNKNOWN, value_info
from environments.tensor_graphs.onnx_io.tensors import DTYPES, NUMBERS, to_tensor

Types = Mapping[str, TensorType | None]


class UnreadableBodyError(Exception):
    """A body cannot be read as a graph, so its node is read as it is in the file."""


def body_model(
    model: onnx.ModelProto,
    body: onnx.GraphProto,
    formal: Sequence[TensorType],
    captured: Types,
    constants: Mapping[str, np.ndarray],
    dimensions: Mapping[str, str],
) -> onnx.ModelProto:
    """Make a model of a body, with the types of its own inputs and of the values that it captures.

    `constants` are the values of the captured ones that are constant.

    Raises:
      UnreadableBodyError: a captured value is no tensor, or its type is not known.
    """
    result = onnx.ModelProto(ir_version=model.ir_version)
    result.opset_import.extend(model.opset_import)
    result.functions.extend(model.functions)
    result.graph.CopyFrom(body)
    del result.graph.input[:]
    names = [info.name for info in body.input]
    for name, kind in (*zip(names, formal, strict=True), *captured.items()):
        if kind is None:
            raise UnreadableBodyError
        if name in constants:
            result.graph.initializer.append(to_tensor(name, constants[name], kind.dtype))
        else:
            result.graph.input.append(value_info(name, kind, dimensions))
    return result


def formal_types(
    node: onnx.NodeProto, body: onnx.GraphProto, types: Sequence[TensorType | None]
) -> list[TensorType]:
    """Return the types of a body's own inputs, as far as the node's inputs and the file give them.

    Raises:
      UnreadableBodyError: an input is no tensor, or its element type is not known.
    """
    if node.op_type == "If":
        return []
    if node.op_type == "Loop":
        first: list[TensorType | None] = [TensorType("int64", ()), TensorType("bool", ())]
        passed = [*first, *types[2:]]
    else:
        passed = _scanned(node, types)
    if len(passed) < len(body.input):
        raise UnreadableBodyError
    return [_formal(info, kind) for info, kind in zip(body.input, passed, strict=False)]


def states(node: onnx.NodeProto, body: onnx.GraphProto) -> list[tuple[int, int]]:
    """Return the places of each state among a body's inputs and among its outputs."""
    if node.op_type == "Loop":
        return [(place, place - 1) for place in range(2, len(body.input))]
    if node.op_type == "Scan":
        return [(place, place) for place in range(len(body.input) - _num_scanned(node))]
    return []


def steady(before: TensorType, after: TensorType | None) -> TensorType:
    """Return the type of a state that has one type before an iteration, and another one after."""
    if before.shape is None or after is None or after.shape is None:
        return TensorType(before.dtype, None)
    if len(before.shape) != len(after.shape):
        return TensorType(before.dtype, None)
    sizes = zip(before.shape, after.shape, strict=True)
    return TensorType(
        before.dtype, tuple(first if first == second else UNKNOWN for first, second in sizes)
    )


def _num_scanned(node: onnx.NodeProto) -> int:
    return next(attribute.i for attribute in node.attribute if attribute.name == "num_scan_inputs")


def _scanned(node: onnx.NodeProto, types: Sequence[TensorType | None]) -> list[TensorType | None]:
    """Return the types that a Scan passes to its body: without the axis that it goes along."""
    count = _num_scanned(node)
    lists = {attribute.name: list(attribute.ints) for attribute in node.attribute}
    axes = lists.get("scan_input_axes") or [0] * count
    passed = list(types[: len(types) - count])
    for kind, axis in zip(types[len(types) - count :], axes, strict=True):
        if kind is None or kind.shape is None or not kind.shape:
            passed.append(kind)
            continue
        shape = list(kind.shape)
        del shape[axis]
        passed.append(TensorType(kind.dtype, tuple(shape)))
    return passed


def _formal(info: onnx.ValueInfoProto, passed: TensorType | None) -> TensorType:
    """Return the type that is passed to a body's input; if it is not known, the file's.

    Names of sizes are left out: within the body they may stand for something else.
    """
    if passed is None:
        number = info.type.tensor_type.elem_type
        if info.type.WhichOneof("value") != "tensor_type" or DTYPES.get(number) not in NUMBERS:
            raise UnreadableBodyError
        return TensorType(DTYPES[number], None)
    if passed.shape is None:
        return passed
    return TensorType(
        passed.dtype, tuple(size if isinstance(size, int) else UNKNOWN for size in passed.shape)
    )
