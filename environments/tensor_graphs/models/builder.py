"""Writes an ONNX model node by node, as an exporter would: `x = build.relu(build.conv(x, …))`."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Batch = int | str

# The intermediate representation that came with opset 13; every later reader knows it.
_IR_VERSION = 8


class Builder:
    """A model in the making.

    Values are known by their names. Names of nodes and weights begin with the scope that is set:

    build.scope = "layer.0/attention"
    """

    def __init__(self, name: str, seed: int, batch: Batch, opset: int) -> None:
        self.name = name
        self.batch = batch
        self.opset = opset
        self.scope = ""
        self._random = np.random.default_rng([zlib.crc32(name.encode()), seed])
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._names: dict[str, int] = {}

    def input(self, name: str, shape: Sequence[int | str], element: int = TensorProto.FLOAT) -> str:
        """An input of the model."""
        self._inputs.append(helper.make_tensor_value_info(name, element, shape))
        return name

    def weight(self, name: str, value: np.ndarray) -> str:
        """A weight of that value."""
        name = self._unique(name)
        self._weights.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    def normal(self, name: str, shape: Sequence[int], deviation: float, mean: float = 0) -> str:
        """A weight drawn from a normal distribution."""
        value = self._random.standard_normal(tuple(shape), np.float32)
        value *= np.float32(deviation)
        value += np.float32(mean)
        return self.weight(name, value)

    def scalar(self, value: float, dtype: Any = np.float32) -> str:
        """A constant, as exporters write a number: a node of its own folded into a weight."""
        return self.weight("constant", np.array(value, dtype))

    def integers(self, *values: int) -> str:
        """A constant list of integers."""
        return self.weight("constant", np.array(values, np.int64))

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """The output of a node."""
        return self.nodes(op, 1, *inputs, **attributes)[0]

    def nodes(self, op: str, num_outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """The outputs of a node that has several."""
        name = self._unique(op)
        outputs = [f"{name}_output_{number}" for number in range(num_outputs)]
        self._nodes.append(helper.make_node(op, inputs, outputs, name, **attributes))
        return outputs

    def conv(
        self, x: str, channels: tuple[int, int], kernel: tuple[int, int], *, bias: bool = False,
        stride: int = 1, groups: int = 1, gain: float = 2.0, pads: tuple[int, int] | None = None,
    ) -> str:  # fmt: skip
        """A convolution that keeps the size if its stride is 1 and nothing is said about `pads`.

        Args:
          x: [N, channels[0], H, W].
          channels: in and out.
          kernel: height and width.
          bias: whether it has one.
          stride: in both directions.
          groups: of channels.
          gain: variance of what comes out over that of what goes in; 2 makes up for a Relu.
          pads: above and on the left; the same are added below and on the right.
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
        """Batch normalisation as it stands in a trained model: statistics near those of x."""
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
        """max(x, 0)."""
        return self.node("Relu", x)

    def max_pool(self, x: str, kernel: int, stride: int, pad: int = 0, ceil: bool = False) -> str:
        """Maximum over windows."""
        return self.node(
            "MaxPool", x, ceil_mode=int(ceil), dilations=[1, 1], kernel_shape=[kernel] * 2,
            pads=[pad] * 4, strides=[stride] * 2,
        )  # fmt: skip

    def classify(self, x: str, channels: int, classes: int = 1000) -> str:
        """Mean over the image, and a linear layer."""
        x = self.node("Flatten", self.node("GlobalAveragePool", x), axis=1)
        weight = self.normal("fc.weight", [classes, channels], channels**-0.5)
        bias = self.normal("fc.bias", [classes], 0.1)
        return self.node("Gemm", x, weight, bias, alpha=1.0, beta=1.0, transB=1)

    def finish(self, **outputs: tuple[str, Sequence[int | str]]) -> onnx.ModelProto:
        """The model; outputs are float32 tensors, by name: (value, shape)."""
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

    def _rename(self, value: str, name: str) -> None:
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [name if one == value else one for one in names]

    def _unique(self, name: str) -> str:
        path = f"{self.scope}/{name}" if self.scope else name
        count = self._names.get(path, 0)
        self._names[path] = count + 1
        return f"{path}_{count}" if count else path
