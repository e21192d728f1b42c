"""ONNX models that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ChangeFn = Callable[[onnx.ModelProto], Any]


def good() -> onnx.ModelProto:
    """Return relu(x w + b), with x [n, 4]."""
    weights = {"w": np.ones((4, 3), np.float32), "b": np.ones(3, np.float32)}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"], "first"),
            helper.make_node("Add", ["m", "b"], ["a"]),
            helper.make_node("Relu", ["a"], ["y"]),
        ],
        "good",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def not_running() -> Iterator[tuple[str, bytes]]:
    """Yield what is wrong with a model that only the backend refuses, as it runs."""
    yield from _changed(_RUNNING)


def wrong() -> Iterator[tuple[str, bytes]]:
    """Yield what is wrong with a model, and its file."""
    yield from _changed(_GRAPHS | _WEIGHTS | _NODES)


def _changed(changes: dict[str, ChangeFn]) -> Iterator[tuple[str, bytes]]:
    for what, change_fn in changes.items():
        model = good()
        change_fn(model)
        yield what, model.SerializeToString()


def _at(model: onnx.ModelProto, path: str) -> tuple[Any, str]:
    """Return what holds a field, such as graph.input.0.name, and the field's own name."""
    inside: Any = model
    *outer, last = path.split(".")
    for name in outer:
        inside = inside[int(name)] if name.isdigit() else getattr(inside, name)
    return inside, last


def _set(path: str, value: Any) -> ChangeFn:
    def change(model: onnx.ModelProto) -> None:
        inside, last = _at(model, path)
        if last.isdigit():
            inside[int(last)] = value
        else:
            setattr(inside, last, value)

    return change


def _cleared(path: str) -> ChangeFn:
    def change(model: onnx.ModelProto) -> None:
        inside, last = _at(model, path)
        inside.ClearField(last)

    return change


def _dims(*sizes: int) -> ChangeFn:
    def change(model: onnx.ModelProto) -> None:
        model.graph.initializer[0].dims[:] = sizes

    return change


def _external(**entries: str) -> ChangeFn:
    """Say that the first weights are in another file."""

    def change(model: onnx.ModelProto) -> None:
        weights = model.graph.initializer[0]
        weights.ClearField("raw_data")
        weights.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            weights.external_data.add(key=key, value=value)

    return change


def _last(op: str, inputs: list[str], **attributes: Any) -> ChangeFn:
    """Replace the last node."""
    return lambda model: model.graph.node[2].CopyFrom(
        helper.make_node(op, inputs, ["y"], **attributes)
    )


def _last_with(op: str, inputs: list[str], array: np.ndarray, **attributes: Any) -> ChangeFn:
    """Replace the last node by one that also takes an array, `c`."""

    def change(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(numpy_helper.from_array(array, "c"))
        _last(op, inputs, **attributes)(model)

    return change


def _sparse(index: int, size: int) -> ChangeFn:
    def change(model: onnx.ModelProto) -> None:
        value = helper.make_tensor("b", TensorProto.FLOAT, [1], [1.0])
        place = helper.make_tensor("b_indices", TensorProto.INT64, [1], [index])
        model.graph.initializer.pop()
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(value, place, [size]))

    return change


def _calls_itself(model: onnx.ModelProto) -> None:
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    for name, other in (("F", "G"), ("G", "F")):
        body = [helper.make_node(other, ["a"], ["b"], domain="own")]
        model.functions.append(helper.make_function("own", name, ["a"], ["b"], body, opset))
    model.opset_import.append(opset[1])
    model.graph.node[2].op_type, model.graph.node[2].domain = "F", "own"


def _body(op: str, inputs: list[str], **attributes: Any) -> onnx.GraphProto:
    output = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    return helper.make_graph(
        [helper.make_node(op, inputs, ["z"], **attributes)], "body", [], [output]
    )


def _deep(model: onnx.ModelProto) -> None:
    body = _body("Relu", ["a"])
    for _ in range(20):
        body = _body("If", ["nothing"], then_branch=body)
    _last("If", ["nothing"], then_branch=body)(model)


_ELEMENTS = "graph.input.0.type.tensor_type.elem_type"
_GRAPHS: dict[str, ChangeFn] = {
    "a cycle": _set("graph.node.0.input.0", "a"),
    "a node that takes its own output": _set("graph.node.2.input.0", "y"),
    "missing weights": lambda model: model.graph.initializer.pop(),
    "an operator that is not known": _set("graph.node.0.op_type", "Nonsense"),
    "a domain that is not known": _set("graph.node.0.domain", "com.nonsense"),
    "an operator without a name": _set("graph.node.0.op_type", ""),
    "an operator without inputs": _cleared("graph.node.0.input"),
    "an operator with too many inputs": lambda model: model.graph.node[2].input.append("x"),
    "an operator without outputs": _cleared("graph.node.2.output"),
    "an output that nothing computes": _set("graph.output.0.name", "nothing"),
    "an output without a name": _set("graph.output.0.name", ""),
    "an input without a name": _set("graph.input.0.name", ""),
    "no outputs": _cleared("graph.output"),
    "a name that is given twice": _set("graph.node.1.output.0", "m"),
    "an output of another type": _set("graph.output.0.type.tensor_type.elem_type", 7),
    "an input of integers": _set(_ELEMENTS, TensorProto.INT64),
    "an input of a type that is not known": _set(_ELEMENTS, 99),
    "an input of another size": _set("graph.input.0.type.tensor_type.shape.dim.1.dim_value", 5),
    "a format of 10^6": _set("ir_version", 10**6),
    "opset 10^6": _set("opset_import.0.version", 10**6),
    "a negative opset": _set("opset_import.0.version", -1),
    "no opset": _cleared("opset_import"),
    "no graph": _cleared("graph"),
    "functions that call each other": _calls_itself,
    "bodies 20 deep, without a condition": _deep,
    "a body with another's name missing": _last("If", ["a"], then_branch=_body("Relu", ["no"])),
}
_BYTES = "graph.initializer.0.raw_data"
_WEIGHTS: dict[str, ChangeFn] = {
    "weights of a type that is not known": _set("graph.initializer.0.data_type", 99),
    "weights of no type": _set("graph.initializer.0.data_type", 0),
    "weights of texts": _set("graph.initializer.0.data_type", TensorProto.STRING),
    "weights of too few bytes": _set(_BYTES, bytes(40)),
    "weights of too many bytes": _set(_BYTES, bytes(80)),
    "weights without bytes": _cleared(_BYTES),
    "weights of 2^62 numbers": _dims(1 << 62),
    "weights of 2^62 by 2^62 numbers": _dims(1 << 62, 1 << 62),
    "weights of a negative size": _dims(-4, 3),
    "weights of two negative sizes": _dims(-4, -3),
    "weights of another shape": _dims(3, 4),
    "weights of no rank": _dims(),
    "weights in a missing file": _external(location="missing.bin"),
    "weights in a file outside": _external(location="../../../../../../etc/passwd"),
    "weights in a file with an absolute name": _external(location="/etc/passwd"),
    "weights in a file without a name": _external(offset="0"),
    "weights in a directory": _external(location="."),
    "weights in a device": _external(location="../../../../../../../../dev/zero"),
    "weights in a file with a zero byte": _external(location="a\0b"),
    "weights at no number": _external(location="model.onnx", offset="here"),
    "weights at a negative place": _external(location="model.onnx", offset="-8"),
    "weights behind the end": _external(location="model.onnx", offset="100000"),
    "weights of 2^60 bytes": _external(location="model.onnx", length=str(1 << 60)),
    "weights of a negative length": _external(location="model.onnx", length="-48"),
    "a sparse tensor with an index out of bounds": _sparse(99, 3),
    "a sparse tensor with a negative index": _sparse(-7, 3),
    "a sparse tensor of 2^60 numbers": _sparse(0, 1 << 60),
}
_NODES: dict[str, ChangeFn] = {
    "a convolution of another rank": _last("Conv", ["a", "w"]),
    "a convolution of negative strides": _last("Conv", ["a", "w"], strides=[-1]),
    "a reshape to two open sizes": _last_with("Reshape", ["a", "c"], np.array([-1, -1])),
    "a reshape to 2^62 numbers": _last_with("Reshape", ["w", "c"], np.array([1 << 62, 3])),
    "an axis that is not there": _last("Softmax", ["a"], axis=7),
    "a permutation that is none": _last("Transpose", ["a"], perm=[0, 0]),
    "a permutation of another rank": _last("Transpose", ["a"], perm=[2, 1, 0]),
    "a concatenation of nothing": _last("Concat", [], axis=0),
    "a concatenation without an axis": _last("Concat", ["a", "a"]),
    "a cast to no type": _last("Cast", ["a"], to=77),
    "a product of shapes that do not fit": _last("MatMul", ["w", "w"]),
    "an attribute of another type": _last("Softmax", ["a"], axis="one"),
    "an attribute that is not known": _last("Softmax", ["a"], colour=1),
    "a division of integers by zero": _last_with("Mod", ["c", "c"], np.array([0])),
    "padding of too few sizes": _last_with("Pad", ["a", "c"], np.array([1])),
    "a slice with a step of zero": _last_with("Slice", ["w", "c", "c", "c", "c"], np.array([0])),
}
_RUNNING: dict[str, ChangeFn] = {
    "a reshape to too many numbers": _last_with("Reshape", ["w", "c"], np.array([5, 3])),
    "an expansion to 2^62 numbers": _last_with("Expand", ["b", "c"], np.array([1 << 62, 3])),
    "a constant of 2^62 numbers": _last_with("ConstantOfShape", ["c"], np.array([1 << 62, 3])),
    "a constant of 2^40 numbers": _last_with("ConstantOfShape", ["c"], np.array([1 << 40, 3])),
    "a gather out of bounds": _last_with("Gather", ["w", "c"], np.array([99])),
    "negative padding beyond the size": _last_with("Pad", ["w", "c"], np.array([-9, 0, 0, 0])),
    "an equation that is none": _last("Einsum", ["a", "w"], equation="ij,j k->>"),
}
