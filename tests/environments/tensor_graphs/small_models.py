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
    weights, nodes, last = {}, [], "x"
    for layer in range(2):
        for name, shape in (("w", (size, size)), ("a", (size, rank)), ("b", (rank, size))):
            # A Python float keeps float32; NumPy 2 promotes the array to np.sqrt's float64.
            array = random.normal(size=shape).astype(np.float32) / math.sqrt(shape[0])
            weights[f"{name}{layer}"] = array
        nodes += [
            f"straight{layer} = MatMul({last}, w{layer}) down{layer} = MatMul({last}, a{layer})",
            f"up{layer} = MatMul(down{layer}, b{layer})",
            f"sum{layer} = Add(straight{layer}, up{layer}) y{layer} = Relu(sum{layer})",
        ]
        last = f"y{layer}"
    return written(" ".join(nodes), weights, {"x": [batch, size]}, {last: [batch, size]})


def convolutions() -> onnx.ModelProto:
    """Convolution, batch normalisation, Relu, twice: onnxruntime itself folds the second one."""
    random = np.random.default_rng(0)
    weights, nodes, last = {}, [], "x"
    for layer in range(2):
        weights[f"kernel{layer}"] = random.normal(size=(8, 8, 3, 3)).astype(np.float32) / 9
        names = [f"{name}{layer}" for name in ("scale", "bias", "mean", "variance")]
        weights |= {name: random.uniform(0.5, 1.5, 8).astype(np.float32) for name in names}
        nodes += [
            f"c{layer} = Conv <pads = [1, 1, 1, 1]> ({last}, kernel{layer})",
            f"n{layer} = BatchNormalization(c{layer}, {', '.join(names)})",
            f"y{layer} = Relu(n{layer})",
        ]
        last = f"y{layer}"
    return written(" ".join(nodes), weights, {"x": [1, 8, 16, 16]}, {last: [1, 8, 16, 16]})


def relu() -> onnx.ModelProto:
    """Nothing can be done about it."""
    return written("y = Relu(x)", {}, {"x": [4]}, {"y": [4]})


def written(nodes: str, weights, inputs, outputs, opset: int = 17) -> onnx.ModelProto:
    """A model of nodes in ONNX's notation, arrays by name, and shapes of inputs and outputs."""
    parsed = onnx.parser.parse_graph(f"g (x) => (x) {{ {nodes} }}").node
    tensors = [numpy_helper.from_array(np.asarray(weights[name]), name) for name in weights]
    return model_of(parsed, tensors, inputs, outputs, opset)


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
