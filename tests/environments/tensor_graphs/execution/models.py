"""Models of a few operators, and what they leave open."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution.sizes import OpenSizes
from tests.environments.tensor_graphs.small_models import model_of


def chain(*ops: str, size: int | str = 64) -> onnx.ModelProto:
    """Make a chain of operators, x: [size, 64] -> y: [size, 64]; MatMul squares its input."""
    names = ["x", *(f"v{number}" for number in range(len(ops) - 1)), "y"]
    nodes = [
        helper.make_node(op, [names[k]] * (2 if op in ("MatMul", "Add") else 1), [names[k + 1]])
        for k, op in enumerate(ops)
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [size, 64]) for n in "xy")
    graph = helper.make_graph(nodes, "chain", [x], [y])
    opsets = [helper.make_opsetid("", 14)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets)


def relus(**shapes: list[int | str]) -> onnx.ModelProto:
    """A Relu of each input; a shape may have names, and -1 for a size that is not known."""
    infos = [helper.make_tensor_value_info(x, TensorProto.FLOAT, s) for x, s in shapes.items()]
    nodes = [helper.make_node("Relu", [x], [f"{x}_out"]) for x in shapes]
    outputs = [
        helper.make_tensor_value_info(f"{x}_out", TensorProto.FLOAT, [None] * len(s))
        for x, s in shapes.items()
    ]
    graph = helper.make_graph(nodes, "relus", infos, outputs)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def open_sizes(**shapes: list[int | str]) -> OpenSizes:
    return OpenSizes(onnx_io.read(relus(**shapes)))


def number(value, name):
    return numpy_helper.from_array(np.float32(value), name)


def relu_of(*nodes, weights=()):
    return model_of(nodes, weights, {"x": ["n"]}, {"y": ["n"]})


def parsed(text: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')


def shifted_there_and_back(by: float):
    """(x + by) - by, which rounds x to the distance of numbers around `by`."""
    nodes = [
        helper.make_node("Add", ["x", "by"], ["s"]),
        helper.make_node("Sub", ["s", "by"], ["y"]),
    ]
    return relu_of(*nodes, weights=[number(by, "by")])


def scaled(by: float):
    return relu_of(helper.make_node("Mul", ["x", "by"], ["y"]), weights=[number(by, "by")])
