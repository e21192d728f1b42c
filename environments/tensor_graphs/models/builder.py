"""Build an ONNX model node by node, as exporters write it: `x = build.relu(build.conv(x, …))`."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Batch = int | str

# ONNX's file format is at least this old wherever opset 13 is understood.
_IR_VERSION = 8


class Builder:
    """Builds one ONNX model. Values are passed around by their names.

    Names of nodes and weights begin with `scope`, which may be changed at any time:

    build.scope = "layer.0/attention"

    Constants of `scalar` and `integers` are weights. Where `constant_nodes` is set, they are nodes,
    as some exporters write them.

    Args:
      name: name of the model; together with `seed` it determines the weights.
      seed: seed of the random weights.
      batch: size of the inputs' first axis, or its name.
      opset: version of ONNX's operators.
    """

    def __init__(self, name: str, seed: int, batch: Batch, opset: int) -> None:
        self.name = name
        self.batch = batch
        self.opset = opset
        self.scope = ""
        self.constant_nodes = False
        self._random = np.random.default_rng([zlib.crc32(name.encode()), seed])
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._names: dict[str, int] = {}

    def input(self, name: str, shape: Sequence[int | str], element: int = TensorProto.FLOAT) -> str:
        """Add an input of the model."""
        self._inputs.append(helper.make_tensor_value_info(name, element, shape))
        return name

    def weight(self, name: str, value: np.ndarray) -> str:
        """Add a weight with this value."""
        name = self._unique(name)
        self._weights.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def normal(self, name: str, shape: Sequence[int], deviation: float, mean: float = 0) -> str:
        """Add a float32 weight drawn from a normal distribution."""
        value = self._random.standard_normal(tuple(shape), np.float32)
        value *= np.float32(deviation)
        value += np.float32(mean)
        return self.weight(name, value)

    def scalar(self, value: float, dtype: Any = np.float32) -> str:
        """Add a scalar constant."""
        return self._constant(np.array(value, dtype))

    def integers(self, *values: int) -> str:
        """Add a constant list of integers."""
        return self._constant(np.array(values, np.int64))

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and return the output."""
        return self.nodes(op, 1, *inputs, **attributes)[0]

    def nodes(self, op: str, num_outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node, and return its outputs."""
        name = self._unique(op)
        outputs = [f"{name}_output_{number}" for number in range(num_outputs)]
        self._nodes.append(helper.make_node(op, inputs, outputs, name, **attributes))
        return outputs

    def conv(
        self, x: str, channels: tuple[int, int], kernel: tuple[int, int], *, bias: bool = False,
        stride: int = 1, groups: int = 1, gain: float = 2.0, pads: tuple[int, int] | None = None,
    ) -> str:  # fmt: skip
        """Add a convolution of x, [N, channels[0], H, W]; its output has channels[1].

        `gain` is the variance of the output divided by that of the input; 2 compensates for a Relu.
        `pads` are above and on the left, and the same is added below and on the right. By default,
        a convolution with stride 1 keeps the size of its input.
        """
        shape = (channels[1], channels[0] // groups, *kernel)
        inputs = [x, self.normal("conv.weight", shape, (gain / math.prod(shape[1:])) ** 0.5)]
        if bias:
            inputs.append(self.normal("conv.bias", shape[:1], 0.1))
        pads = (kernel[0] // 2, kernel[1] // 2) if pads is None else pads
        return self.node(
            "Conv", *inputs, dilations=[1, 1], group=groups, kernel_shape=kernel,
            pads=[*pads, *pads], strides=[stride, stride],
        )  # fmt: skip

    def batch_norm(self, x: str, channels: int, scale: float = 1.0) -> str:
        """Add a batch normalisation with the statistics of a trained model, near those of x."""
        inputs = [
            self.normal("norm.weight", [channels], 0.1 * scale, scale),
            self.normal("norm.bias", [channels], 0.1),
            self.normal("norm.running_mean", [channels], 0.1),
            self.weight("norm.running_var", self._random.uniform(0.8, 1.2, channels).astype("f4")),
        ]
        return self.node(
            "BatchNormalization", x, *inputs, epsilon=1e-5, momentum=0.9, training_mode=0
        )

    def relu(self, x: str) -> str:
        """Add a Relu: max(x, 0)."""
        return self.node("Relu", x)

    def max_pool(self, x: str, kernel: int, stride: int, pad: int = 0, ceil: bool = False) -> str:
        """Add a pool that takes the maximum over square windows."""
        return self.node(
            "MaxPool", x, ceil_mode=int(ceil), dilations=[1, 1], kernel_shape=[kernel] * 2,
            pads=[pad] * 4, strides=[stride] * 2,
        )  # fmt: skip

    def finish(self, **outputs: tuple[str, Sequence[int | str]]) -> onnx.ModelProto:
        """Return the model, given (value, shape) of each output by its name; all are float32."""
        infos = []
        for name, (value, shape) in outputs.items():
            self._rename(value, name)
            infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        graph = helper.make_graph(self._nodes, self.name, self._inputs, infos, self._weights)
        return helper.make_model(
            graph,
            ir_version=_IR_VERSION,
            opset_imports=[helper.make_opsetid("", self.opset)],
            producer_name="tfrl",
        )

    def _constant(self, value: np.ndarray) -> str:
        if self.constant_nodes:
            return self.node("Constant", value=numpy_helper.from_array(value))
        return self.weight("constant", value)

    def _rename(self, value: str, name: str) -> None:
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [name if old == value else old for old in names]

    def _unique(self, name: str) -> str:
        path = f"{self.scope}/{name}" if self.scope else name
        count = self._names.get(path, 0)
        self._names[path] = count + 1
        return f"{path}_{count}" if count else path
