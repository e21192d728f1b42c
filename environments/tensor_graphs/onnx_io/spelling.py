"""How a node of a graph is written in a version of ONNX's operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from environments.errors import UserError
from environments.tensor_graphs.nodes import Attribute, Node, TensorType
from environments.tensor_graphs.onnx_io.tensors import NUMBERS, storage
from environments.tensor_graphs.operators.layout import reshape_request
from environments.tensor_graphs.operators.table import OPERATORS

Values = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Step:
    """A node as a file has it.

    Attributes:
      op: operator.
      attributes: by name.
      lists: what a file has as inputs behind the node's own; None where one is left out.
    """

    op: str
    attributes: Mapping[str, Attribute]
    lists: Sequence[np.ndarray | None] = ()


def is_available(op: str, opset: int) -> bool:
    """Whether a version of ONNX has an operator."""
    try:
        onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        return False
    return True


def spelled(node: Node, types: Sequence[TensorType | None], opset: int) -> list[Step]:
    """The nodes to be written for a node, each of which has the output of the one before.

    Args:
      node: in its canonical form.
      types: of its inputs.
      opset: version of ONNX's operators.

    Raises:
      UserError: that version has no such node.
    """
    if not is_available(node.op, opset):
        raise UserError(
            f"opset {opset} has no operator {node.op}; convert the model to a newer one"
        )
    values = dict(node.attributes)
    known = [one for one in types if one is not None]
    if node.op in _SPELLINGS:
        steps = _SPELLINGS[node.op](values, known, opset)
    else:
        steps = [Step(node.op, values)]
    return [dataclasses.replace(step, attributes=_told(step, opset)) for step in steps]


def _told(step: Step, opset: int) -> Mapping[str, Attribute]:
    """The attributes that are not what that version takes when it is told nothing.

    Raises:
      UserError: the version cannot be told an attribute.
    """
    known = onnx.defs.get_schema(step.op, opset).attributes
    told = {}
    for name, value in step.attributes.items():
        if name in known:
            default = known[name].default_value
            if not default.name or onnx.helper.get_attribute_value(default) != _encoded(value):
                told[name] = value
        elif value != OPERATORS[step.op].attributes.get(name):
            raise UserError(
                f"{step.op} of opset {opset} has no attribute {name}; convert the model to a newer "
                "opset"
            )
    return told


def _encoded(value: Attribute) -> Any:
    return value.encode() if isinstance(value, str) else value


def _integers(values: Sequence[int]) -> np.ndarray:
    return np.array(values, np.int64)


def _reshape(values: Values, types: Sequence[TensorType], opset: int) -> list[Step]:
    shape, target = types[0].shape or (), values["shape"]
    request = reshape_request(shape, target)
    if request is None:
        ones = [axis for axis, size in enumerate(shape) if size == 1]
        new = [axis for axis, size in enumerate(target) if size == 1]
        steps = [Step("Squeeze", {}, [_integers(ones)])] if ones else []
        return [*steps, Step("Unsqueeze", {}, [_integers(new)])] if new else steps
    copied = all(
        size or (place < len(shape) and shape[place] == target[place])
        for place, size in enumerate(request)
    )
    return [Step("Reshape", {} if copied else {"allowzero": 1}, [_integers(request)])]


def _expand(values: Values, types: Sequence[TensorType], opset: int) -> list[Step]:
    # 1 leaves a size as it is; no other one can be unknown.
    sizes = [size if isinstance(size, int) else 1 for size in values["shape"]]
    return [Step("Expand", {}, [_integers(sizes)])]


def _tile(values: Values, types: Sequence[TensorType], opset: int) -> list[Step]:
    return [Step("Tile", {}, [_integers(values["repeats"])])]


def _split(values: Values, types: Sequence[TensorType], opset: int) -> list[Step]:
    return [Step("Split", {"axis": values["axis"]}, [_integers(values["split"])])]


def _slice(values: Values, types: Sequence[TensorType], opset: int) -> list[Step]:
    if not values["axes"]:
        return [Step("Identity", {})]
    lists = [_integers(values[name]) for name in ("starts", "ends", "axes", "steps")]
    return [Step("Slice", {}, lists if set(values["steps"]) != {1} else lists[:3])]


def _pad(values: Values, types: Sequence[TensorType], opset: int) -> list[Step]:
    filling = _scalar(values["value"], types[0]) if values["value"] else None
    return [Step("Pad", {"mode": values["mode"]}, [_integers(values["pads"]), filling])]


def _clip(values: Values, types: Sequence[TensorType], opset: int) -> list[Step]:
    bounds = [values["min"], values["max"]]
    return [Step("Clip", {}, [None if np.isinf(one) else _scalar(one, types[0]) for one in bounds])]


def _scalar(value: float, like: TensorType) -> np.ndarray:
    return np.array(value, storage(like.dtype))


def _reduction(op: str) -> Callable[[Values, Sequence[TensorType], int], list[Step]]:
    def spell(values: Values, types: Sequence[TensorType], opset: int) -> list[Step]:
        keepdims, axes = {"keepdims": values["keepdims"]}, values["axes"]
        if not axes and types[0].shape:
            raise UserError(f"{op} over no axes cannot be written")
        if not axes:
            return [Step(op, keepdims)]
        as_input = onnx.defs.get_schema(op, opset).inputs[1:]
        if as_input:
            return [Step(op, keepdims, [_integers(axes)])]
        return [Step(op, {"axes": axes, **keepdims})]

    return spell


def _cast(values: Values, types: Sequence[TensorType], opset: int) -> list[Step]:
    return [Step("Cast", {"to": NUMBERS[values["to"]]})]


def _conv(op: str) -> Callable[[Values, Sequence[TensorType], int], list[Step]]:
    def spell(values: Values, types: Sequence[TensorType], opset: int) -> list[Step]:
        kernel = (types[1].shape or ())[2:]
        return [Step(op, {"kernel_shape": kernel, **values})]

    return spell


def _average_pool(values: Values, types: Sequence[TensorType], opset: int) -> list[Step]:
    if set(values["dilations"]) == {1}:
        del values["dilations"]
    return [Step("AveragePool", values)]


def _shape(values: Values, types: Sequence[TensorType], opset: int) -> list[Step]:
    if (values["start"], values["end"]) == (0, len(types[0].shape or ())):
        return [Step("Shape", {})]
    return [Step("Shape", values)]


_SPELLINGS: Mapping[str, Callable[[Values, Sequence[TensorType], int], list[Step]]] = {
    "AveragePool": _average_pool,
    "Cast": _cast,
    "Clip": _clip,
    "Conv": _conv("Conv"),
    "ConvTranspose": _conv("ConvTranspose"),
    "Expand": _expand,
    "Pad": _pad,
    **{name: _reduction(name) for name in OPERATORS if name.startswith("Reduce")},
    "Reshape": _reshape,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Tile": _tile,
}
