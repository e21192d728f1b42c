"""Models of a few operators, and what they leave open."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution.sizes import OpenSizes


def parsed(text: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')


def of_x(text: str) -> onnx.ModelProto:
    """A model of x: [n] that returns y: [n]; the text has its weights and nodes."""
    return parsed(f"small (float[n] x) => (float[n] y) {text}")


def chain(*ops: str, size: int | str = 64) -> onnx.ModelProto:
    """A chain of operators, x: [size, 64] -> y: [size, 64]; MatMul squares its input."""
    names = ["x", *(f"v{number}" for number in range(len(ops) - 1)), "y"]
    calls = [
        f"{after} = {op}({before}{f', {before}' if op == 'MatMul' else ''})"
        for op, before, after in zip(ops, names, names[1:], strict=False)
    ]
    kind = f"float[{size},64]"
    return parsed(f"chain ({kind} x) => ({kind} y) {{ {' '.join(calls)} }}", 14)


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


def shifted_there_and_back(by: float) -> onnx.ModelProto:
    """(x + by) - by, which rounds x to the distance of numbers around `by`."""
    return of_x(f"<float by = {{{by}}}> {{ s = Add(x, by) y = Sub(s, by) }}")


def scaled(by: float) -> onnx.ModelProto:
    return of_x(f"<float by = {{{by}}}> {{ y = Mul(x, by) }}")


def crashing() -> onnx.ModelProto:
    """onnxruntime does not expect that a part in the middle has no name."""
    model = parsed(
        """g (float[2,7] x) => (float[2,2] e, float[2,4] y) <int64[3] s = {2, 1, 4}>
        { e, m, f = Split <axis = -1> (x, s) y = Relu(f) }"""
    )
    model.graph.node[0].output[1] = ""
    return model
