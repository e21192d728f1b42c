"""A learned optimiser as an ONNX model, for programs that have onnxruntime and nothing of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tfrl_systems.policies.numpy_mixture import NumpyMixture
from tfrl_systems.policies.numpy_network import NumpyNetwork

Network = NumpyNetwork | NumpyMixture
"""What computes x of (x, c)."""

# Both are understood by every onnxruntime of the last years.
_OPSET, _IR_VERSION = 13, 7
_ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu"}


def to_onnx(network: Network, num_free: int) -> onnx.ModelProto:
    """Return a model that computes what `OptimizerPolicy` does.

    Its input is c, float32 [N, k], its output x, float32 [N, n - k]; `num_free` is k.
    """
    builder = _Model()
    num_tuned = network.num_actions
    # As many rows of zeros as c has.
    x = builder.add("MatMul", "c", builder.constant("none", np.zeros((num_free, num_tuned))))
    x = _step(builder, network, x)
    builder.nodes.append(helper.make_node("Identity", [x], ["x"]))
    graph = helper.make_graph(
        builder.nodes,
        "optimiser",
        [helper.make_tensor_value_info("c", TensorProto.FLOAT, ["N", num_free])],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", num_tuned])],
        list(builder.weights.values()),
    )
    opsets = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(
        graph, producer_name="tfrl-systems", opset_imports=opsets, ir_version=_IR_VERSION
    )
    onnx.checker.check_model(model, full_check=True)
    return model


class _Model:
    """Nodes and weights so far; values get names of their own."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        output = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def constant(self, name: str, value: np.ndarray) -> str:
        stored = value if value.dtype == np.int64 else value.astype(np.float32)
        self.weights[name] = numpy_helper.from_array(stored, name)
        return name


def _step(builder: _Model, network: Network, x: str) -> str:
    """Add the nodes from one x to the next, and return the name of that."""
    point = builder.add("Concat", x, "c", axis=1)
    if isinstance(network, NumpyNetwork):
        return _bounded(builder, network, _sums(builder, point, network.layers, network))
    sums = _sums(builder, point, network.answers.layers, network.answers, "answers_")
    answers = _bounded(builder, network.answers, sums)
    shape = np.array([0, network.num_components, network.num_actions])  # 0: as many rows as before
    answers = builder.add("Reshape", answers, builder.constant("shape", shape))
    # The judge's first outputs are the values.
    *hidden, (kernel, bias) = network.judge.layers
    of_values = (kernel[:, : network.num_components], bias[: network.num_components])
    values = _sums(builder, point, [*hidden, of_values], network.judge, "judge_")
    best = builder.add("ArgMax", values, axis=1, keepdims=1)
    return builder.add("GatherND", answers, best, batch_dims=1)


def _sums(
    builder: _Model,
    values: str,
    layers: list[tuple[np.ndarray, np.ndarray]],
    network: NumpyNetwork,
    prefix: str = "",
) -> str:
    """Add a perceptron of these layers; return the last one's sums.

    The names of the weights begin with `prefix`.
    """
    if network.input_limits is not None:
        least, greatest = network.input_limits
        values = builder.add("Max", values, builder.constant("least", least))
        values = builder.add("Min", values, builder.constant("greatest", greatest))
    for number, (kernel, bias) in enumerate(layers):
        weights = (
            builder.constant(f"{prefix}kernel_{number}", kernel),
            builder.constant(f"{prefix}bias_{number}", bias),
        )
        values = builder.add("Gemm", values, *weights)
        if number < len(layers) - 1:
            values = builder.add(_ACTIVATIONS[network.activation], values)
    return values


def _bounded(builder: _Model, network: NumpyNetwork, sums: str) -> str:
    """Bring sums into the range of the network's actions."""
    middle, half_range = network.action_range
    shares = builder.add("Tanh", sums)
    values = builder.add("Mul", shares, builder.constant("half_range", half_range))
    return builder.add("Add", values, builder.constant("middle", middle))
