"""Models of a few operators, made by hand."""

from __future__ import annotations

import math
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def adapter(size: int = 192, rank: int = 96, batch: int | str = 64) -> onnx.ModelProto:
    """x·W + (x·A)·B, twice: less than half of the work is left where W + A·B is one matrix."""
    random = np.random.default_rng(0)
    weights, nodes, last = [], [], "x"
    for layer in range(2):
        for name, shape in (("w", (size, size)), ("a", (size, rank)), ("b", (rank, size))):
            # A Python float keeps float32; NumPy 2 promotes the array to np.sqrt's float64.
            array = random.normal(size=shape).astype(np.float32) / math.sqrt(shape[0])
            weights.append(numpy_helper.from_array(array, f"{name}{layer}"))
        nodes += [
            helper.make_node("MatMul", [last, f"w{layer}"], [f"straight{layer}"]),
            helper.make_node("MatMul", [last, f"a{layer}"], [f"down{layer}"]),
            helper.make_node("MatMul", [f"down{layer}", f"b{layer}"], [f"up{layer}"]),
            helper.make_node("Add", [f"straight{layer}", f"up{layer}"], [f"sum{layer}"]),
            helper.make_node("Relu", [f"sum{layer}"], [f"y{layer}"]),
        ]
        last = f"y{layer}"
    return model_of(nodes, weights, {"x": [batch, size]}, {last: [batch, size]})


def convolutions() -> onnx.ModelProto:
    """Convolution, batch normalisation, Relu, twice: onnxruntime itself folds the second one."""
    random = np.random.default_rng(0)
    weights, nodes, last = [], [], "x"
    for layer in range(2):
        kernel = random.normal(size=(8, 8, 3, 3)).astype(np.float32) / 9
        weights.append(numpy_helper.from_array(kernel, f"kernel{layer}"))
        for name in ("scale", "bias", "mean", "variance"):
            array = random.uniform(0.5, 1.5, 8).astype(np.float32)
            weights.append(numpy_helper.from_array(array, f"{name}{layer}"))
        names = [f"{name}{layer}" for name in ("scale", "bias", "mean", "variance")]
        nodes += [
            helper.make_node("Conv", [last, f"kernel{layer}"], [f"c{layer}"], pads=[1, 1, 1, 1]),
            helper.make_node("BatchNormalization", [f"c{layer}", *names], [f"n{layer}"]),
            helper.make_node("Relu", [f"n{layer}"], [f"y{layer}"]),
        ]
        last = f"y{layer}"
    return model_of(nodes, weights, {"x": [1, 8, 16, 16]}, {last: [1, 8, 16, 16]})


def relu() -> onnx.ModelProto:
    """Nothing can be done about it."""
    return model_of([helper.make_node("Relu", ["x"], ["y"])], [], {"x": [4]}, {"y": [4]})


def model_of(nodes, weights, inputs, outputs, opset: int = 17) -> onnx.ModelProto:
    """A model of float32 inputs and outputs, by name and shape."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, inputs[name]) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, outputs[name]) for name in outputs],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def write(path: pathlib.Path, model: onnx.ModelProto) -> pathlib.Path:
    """Writes a model into a file."""
    path.write_bytes(model.SerializeToString())
    return path
