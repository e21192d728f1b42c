"""Models of one product x·w: the weight is in another file, and in any place of the model."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.environments.tensor_graphs.small_models import model_of

WEIGHT = np.arange(9, dtype=np.float32).reshape(3, 3)
OFFSET = 64
X = np.ones((2, 3), np.float32)
PRODUCT = [[9, 12, 15]] * 2


def weight(name: str = "w", location: str = "data/w.bin") -> onnx.TensorProto:
    """The weight, 64 bytes after the beginning of a file."""
    tensor = numpy_helper.from_array(WEIGHT, name)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", OFFSET), ("length", WEIGHT.nbytes)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def constant(tensor: onnx.TensorProto) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [tensor.name], value=tensor)


def branches(nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto]) -> onnx.NodeProto:
    """An If of the same graph twice, but for its names."""
    graphs = {}
    for name in ("then", "else"):
        output = helper.make_tensor_value_info(f"y_{name}", 1, [2, 3])
        product = helper.make_node("MatMul", ["x", "w"], [output.name])
        graphs[f"{name}_branch"] = helper.make_graph([*nodes, product], name, [], [output], weights)
    return helper.make_node("If", ["yes"], ["y"], **graphs)


def models(location: str = "data/w.bin") -> Mapping[str, onnx.ModelProto]:
    """Return the models by where the weight is."""
    w, ends = weight("w", location), ({"x": [2, 3]}, {"y": [2, 3]})
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    yes = numpy_helper.from_array(np.array(True), "yes")
    called = helper.make_node("F", ["x"], ["y"], domain="own")
    flat = numpy_helper.from_array(WEIGHT.reshape(-1), "w")
    flat.ClearField("raw_data")
    flat.data_location = onnx.TensorProto.EXTERNAL
    flat.external_data.extend(w.external_data)
    places = numpy_helper.from_array(np.arange(9))
    models_by_name = {
        "initialiser": model_of([product], [w], *ends),
        "Constant": model_of([constant(w), product], [], *ends),
        "initialiser of a body": model_of([branches([], [w])], [yes], *ends),
        "Constant of a body": model_of([branches([constant(w)], [])], [yes], *ends),
        "function": model_of([called], [], *ends),
        "sparse initialiser": model_of([product], [], *ends),
    }
    opsets = list(models_by_name["function"].opset_import)
    function = helper.make_function("own", "F", ["x"], ["y"], [constant(w), product], opsets)
    models_by_name["function"].functions.append(function)
    models_by_name["function"].opset_import.add(domain="own", version=1)
    sparse = helper.make_sparse_tensor(flat, places, [3, 3])
    models_by_name["sparse initialiser"].graph.sparse_initializer.append(sparse)
    return models_by_name


def write(model: onnx.ModelProto, directory: pathlib.Path) -> pathlib.Path:
    """Write a model and its data into a directory; return the model's path."""
    (directory / "data").mkdir(parents=True)
    (directory / "data" / "w.bin").write_bytes(bytes(OFFSET) + WEIGHT.tobytes())
    path = directory / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path
