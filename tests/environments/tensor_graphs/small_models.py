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


def write_large(path: pathlib.Path, opset: int, num_layers: int, size: int) -> int:
    """Write a chain of products whose random weights are in another file; return their bytes."""
    block = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32) / size**0.5
    nodes, weights, last = [], [], "x"
    with path.with_suffix(".data").open("wb") as file:
        for layer in range(num_layers):
            tensor = TensorProto(name=f"w{layer}", data_type=1, dims=[size, size])
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (
                ("location", f"{path.stem}.data"),
                ("offset", file.tell()),
                ("length", block.nbytes),
            ):
                tensor.external_data.add(key=key, value=str(value))
            # No two are equal, or they would be one.
            file.write((block + np.float32(layer / 1000)).tobytes())
            weights.append(tensor)
            nodes.append(helper.make_node("MatMul", [last, f"w{layer}"], [f"m{layer}"]))
            nodes.append(helper.make_node("Tanh", [f"m{layer}"], [f"y{layer}"]))
            last = f"y{layer}"
    ends = [helper.make_tensor_value_info(name, 1, [1, size]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=7), path)
    return num_layers * block.nbytes
