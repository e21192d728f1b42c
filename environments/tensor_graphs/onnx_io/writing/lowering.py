"""Lower canonical nodes to nodes of a given version of ONNX's operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from environments.errors import UserError
from environments.tensor_graphs.graph.nodes import Attribute, Node, TensorType
from environments.tensor_graphs.onnx_io.older_forms import MOVED, SOFTMAX_OF_AXIS
from environments.tensor_graphs.onnx_io.tensors import NUMBERS, storage
from environments.tensor_graphs.operators import contrib
from environments.tensor_graphs.operators.layout import reshape_request, reshaped, without_ones
from environments.tensor_graphs.operators.operator import Shape
from environments.tensor_graphs.operators.table import OPERATORS

Values = dict[str, Any]
Types = Sequence[TensorType]

_FLATTEN_OF_ALL = 9
"""The opset since which Flatten takes all types."""

_OPTIONAL_BIAS = 11
"""The opset since which Gemm may have no third input."""


@dataclasses.dataclass(frozen=True)
class OnnxNode:
    """A node in the file's form, without the names of its values.

    Attributes:
      attributes: values by name.
      lists: constant inputs that follow the node's own inputs; None for each that is left out.
      form: how the node of another domain than ONNX's is written; None for ONNX's own.
    """

    op: str
    attributes: Mapping[str, Attribute]
    lists: Sequence[np.ndarray | None] = ()
    form: contrib.Form | None = None


def lower(node: Node, types: Sequence[TensorType | None], opset: int) -> list[OnnxNode]:
    """Lower a node to a chain of ONNX's nodes, each with the output of the one before as its input.

    Raises:
      UserError: this version lacks the operator or one of its attributes.
    """
    if node.op in contrib.FORMS:
        form = contrib.FORMS[node.op]
        return [OnnxNode(form.op, dict(node.attributes), form=form)]
    if not onnx.defs.has(node.op, opset):
        raise UserError(
            f"opset {opset} has no operator {node.op}; convert the model to a newer one"
        )
    values = dict(node.attributes)
    tensors = [kind for kind in types if kind is not None]
    if node.op in _LOWERINGS:
        chain = _LOWERINGS[node.op](node, values, tensors, opset)
    else:
        chain = [OnnxNode(node.op, values)]
    return [_in_older_form(lowered, opset) for lowered in chain]


def _in_older_form(node: OnnxNode, opset: int) -> OnnxNode:
    """Return a node with the attributes that this version has in place of constant inputs."""
    since, names = MOVED.get(node.op, (0, ()))
    attributes = _written(node, opset)
    if opset >= since:
        return dataclasses.replace(node, attributes=attributes)
    if len(node.lists) > len(names):
        raise UserError(
            f"{node.op} of opset {opset} has no steps; convert the model to a newer one"
        )
    lists = zip(names, node.lists, strict=False)
    moved_values = {name: values.tolist() for name, values in lists if values is not None}
    return OnnxNode(node.op, {**attributes, **moved_values})


def _written(node: OnnxNode, opset: int) -> Mapping[str, Attribute]:
    """Return the attributes whose values differ from the defaults in this version.

    Raises:
      UserError: the version lacks one of the attributes.
    """
    schema = onnx.defs.get_schema(node.op, opset).attributes
    written = {}
    for name, value in node.attributes.items():
        if name in schema:
            default = schema[name].default_value
            encoded = value.encode() if isinstance(value, str) else value
            if not default.name or onnx.helper.get_attribute_value(default) != encoded:
                written[name] = value
        elif value != OPERATORS[node.op].attributes.get(name):
            raise UserError(
                f"{node.op} of opset {opset} has no attribute {name}; convert the model to a newer "
                "opset"
            )
    return written


def _integers(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int64)


def _reshape(node: Node, values: Values, types: Types, opset: int) -> list[OnnxNode]:
    shape, target = types[0].shape or (), values["shape"]
    request = reshape_request(shape, target)
    if request is None or -1 in request:
        # onnxruntime computes no size of an array without elements, where another size is copied.
        if without_ones(shape) == without_ones(target):
            return _with_other_ones(shape, target)
        for axis in range(len(shape) + 1 if len(target) == 2 and opset >= _FLATTEN_OF_ALL else 0):
            if target == reshaped("Flatten", shape, {"axis": axis}):
                return [OnnxNode("Flatten", {"axis": axis})]
    assert request is not None
    copied = all(
        size or (place < len(shape) and shape[place] == target[place])
        for place, size in enumerate(request)
    )
    return [OnnxNode("Reshape", {} if copied else {"allowzero": 1}, [_integers(request)])]


def _with_other_ones(shape: Shape, target: Shape) -> list[OnnxNode]:
    """Return what removes the sizes of 1 and adds those of the target."""
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    new = [axis for axis, size in enumerate(target) if size == 1]
    chain = [OnnxNode("Squeeze", {}, [_integers(ones)])] if ones else []
    return [*chain, OnnxNode("Unsqueeze", {}, [_integers(new)])] if new else chain


def _expand(node: Node, values: Values, types: Types, opset: int) -> list[OnnxNode]:
    # 1 keeps the input's size, and only sizes that are kept can be unknown.
    sizes = [size if isinstance(size, int) else 1 for size in values["shape"]]
    return [OnnxNode("Expand", {}, [_integers(sizes)])]


def _slice(node: Node, values: Values, types: Types, opset: int) -> list[OnnxNode]:
    if not values["axes"]:
        return [OnnxNode("Identity", {})]
    lists = [_integers(values[name]) for name in ("starts", "ends", "axes", "steps")]
    return [OnnxNode("Slice", {}, lists if set(values["steps"]) != {1} else lists[:3])]


def _pad(node: Node, values: Values, types: Types, opset: int) -> list[OnnxNode]:
    filling = _scalar(values["value"], types[0]) if values["value"] else None
    return [OnnxNode("Pad", {"mode": values["mode"]}, [_integers(values["pads"]), filling])]


def _clip(node: Node, values: Values, types: Types, opset: int) -> list[OnnxNode]:
    bounds = [
        None if np.isinf(values[name]) else _scalar(values[name], types[0])
        for name in ("min", "max")
    ]
    return [OnnxNode("Clip", {}, bounds)]


def _scalar(value: float, like: TensorType) -> np.ndarray:
    return np.array(value, storage(like.dtype))


def _reduction(node: Node, values: Values, types: Types, opset: int) -> list[OnnxNode]:
    keepdims, axes = {"keepdims": values["keepdims"]}, values["axes"]
    if not axes and types[0].shape:
        raise UserError(f"{node.op} over no axes cannot be written")
    if not axes:
        return [OnnxNode(node.op, keepdims)]
    if onnx.defs.get_schema(node.op, opset).inputs[1:]:
        return [OnnxNode(node.op, keepdims, [_integers(axes)])]
    return [OnnxNode(node.op, {"axes": axes, **keepdims})]


def _softmax(node: Node, values: Values, types: Types, opset: int) -> list[OnnxNode]:
    if opset < SOFTMAX_OF_AXIS and values["axis"] != len(types[0].shape or ()) - 1:
        raise UserError(f"{node.op} of opset {opset} works along the last axis; found {values}")
    return [OnnxNode(node.op, values)]


def _gemm(node: Node, values: Values, types: Types, opset: int) -> list[OnnxNode]:
    if len(types) < 3 and opset < _OPTIONAL_BIAS:
        return [OnnxNode("Gemm", values, [np.zeros(1, storage(types[0].dtype))])]
    return [OnnxNode("Gemm", values)]


def _conv(node: Node, values: Values, types: Types, opset: int) -> list[OnnxNode]:
    return [OnnxNode(node.op, {"kernel_shape": (types[1].shape or ())[2:], **values})]


def _average_pool(node: Node, values: Values, types: Types, opset: int) -> list[OnnxNode]:
    if set(values["dilations"]) == {1}:
        del values["dilations"]
    return [OnnxNode("AveragePool", values)]


def _shape(node: Node, values: Values, types: Types, opset: int) -> list[OnnxNode]:
    is_whole = (values["start"], values["end"]) == (0, len(types[0].shape or ()))
    return [OnnxNode("Shape", {} if is_whole else values)]


_LOWERINGS: Mapping[str, Callable[[Node, Values, Types, int], list[OnnxNode]]] = {
    "AveragePool": _average_pool,
    "Cast": lambda node, values, *_: [OnnxNode("Cast", {"to": NUMBERS[values["to"]]})],
    "Clip": _clip,
    "Conv": _conv,
    "ConvTranspose": _conv,
    "Expand": _expand,
    "Gemm": _gemm,
    "LogSoftmax": _softmax,
    "Pad": _pad,
    **{name: _reduction for name in OPERATORS if name.startswith("Reduce")},
    "Reshape": _reshape,
    "Shape": _shape,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": lambda node, values, *_: [
        OnnxNode("Split", {"axis": values["axis"]}, [_integers(values["split"])])
    ],
    "Tile": lambda node, values, *_: [OnnxNode("Tile", {}, [_integers(values["repeats"])])],
}
