"""Run models to see whether two of them compute the same."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import Node
from environments.tensor_graphs.onnx_io import read, write

_DATA = pathlib.Path(onnx.__file__).parent / "backend/test/data"
SMALL_TESTS = [_DATA / name for name in ("node", "simple", "pytorch-operator", "pytorch-converted")]
LIGHT_MODELS = _DATA / "light"
RANDOM = ("test_bernoulli", "test_randomuniform", "test_training_dropout")
"""Node tests with random results."""


def parsed(text: str, **changes: Any) -> onnx.ModelProto:
    """Parse a model in ONNX's own notation; its opset is 17 if it names none."""
    if not text.lstrip().startswith("<"):
        text = f'<ir_version: 8, opset_import: ["" : {changes.pop("opset", 17)}]> {text}'
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model, full_check=True)
    return model


def operators(graph: Graph) -> list[str]:
    """Return the operators that run, in order."""
    return [
        graph.nodes[number].op
        for number in graph.order()
        if graph.nodes[number].op != "Input" and not graph.is_constant(number)
    ]


def only(graph: Graph, op: str) -> Node:
    """Return the only node of an operator."""
    (node,) = (node for node in graph.nodes.values() if node.op == op)
    return node


def run(model: onnx.ModelProto | pathlib.Path, inputs: Mapping[str, Any]) -> list[Any]:
    """Run a model without any optimisation; return its outputs."""
    return list(backend("onnxruntime-disable").open(model).run(inputs).values())


def random_inputs(model: onnx.ModelProto, unknown: int = 2, seed: int = 0) -> dict[str, Any]:
    """Draw inputs of the right types; sizes that are not known are `unknown`."""
    rng = np.random.default_rng(seed)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = {}
    for info in model.graph.input:
        tensor = info.type.tensor_type
        if info.name not in weights:
            shape = [
                size.dim_value if size.HasField("dim_value") else unknown
                for size in tensor.shape.dim
            ]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            inputs[info.name] = np.asarray(rng.normal(size=shape) * 3).astype(dtype)
    return inputs


def equal(value: Any, expected: Any) -> bool:
    """Whether outputs are equal bit for bit, except for the bits of NaNs."""
    if isinstance(value, list):
        return len(value) == len(expected) and all(map(equal, value, expected))
    if value is None or expected is None:
        return value is expected
    value, expected = np.asarray(value), np.asarray(expected)
    if (value.dtype, value.shape) != (expected.dtype, expected.shape):
        return False
    if value.dtype.kind != "O" and value.tobytes() == expected.tobytes():
        return True
    return np.array_equal(value, expected, equal_nan=value.dtype.kind in "fc")


def round_trip(
    model: onnx.ModelProto | str, inputs: Mapping[str, Any] | None = None, **changes: Any
) -> tuple[Graph, onnx.ModelProto]:
    """Read a model, or the text of one, and write it; it computes the same, and did not change."""
    model = parsed(model, **changes) if isinstance(model, str) else model
    content = model.SerializeToString()
    graph = read(model)
    assert model.SerializeToString() == content
    written = write(graph)
    inputs = random_inputs(model) if inputs is None else inputs
    assert equal(run(model, inputs), run(written, inputs))
    return graph, written


def with_weights(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    """Parse a model; its inputs of these names are weights instead."""
    return with_constants(parsed(text), weights)


def node_tests() -> Iterator[tuple[str, onnx.ModelProto, dict[str, Any]]]:
    """Yield name, model and inputs of each of ONNX's tests of single nodes and small models."""
    for directory in (test for tests in SMALL_TESTS for test in sorted(tests.iterdir())):
        if directory.name.startswith(RANDOM):
            continue
        model = onnx.load(directory / "model.onnx")
        weights = {tensor.name for tensor in model.graph.initializer}
        infos = [info for info in model.graph.input if info.name not in weights]
        try:
            inputs = {
                info.name: _value(directory / f"test_data_set_0/input_{place}.pb", info)
                for place, info in enumerate(infos)
            }
        except (OSError, ValueError, TypeError, KeyError):
            continue  # Of types that NumPy cannot hold in every version of onnx.
        yield directory.name, model, inputs


def _value(path: pathlib.Path, info: onnx.ValueInfoProto) -> Any:
    content = path.read_bytes()
    match info.type.WhichOneof("value"):
        case "tensor_type":
            return numpy_helper.to_array(onnx.TensorProto.FromString(content))
        case "sequence_type":
            return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))


def with_constants(model: onnx.ModelProto, values: Mapping[str, Any]) -> onnx.ModelProto:
    """Return a model with some of its inputs replaced by constants."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    fixed.ir_version = max(model.ir_version, 4)
    left = [info for info in model.graph.input if info.name not in values]
    del fixed.graph.input[:]
    fixed.graph.input.extend(left)
    for name, value in values.items():
        fixed.graph.initializer.append(numpy_helper.from_array(value, name))
    return fixed
