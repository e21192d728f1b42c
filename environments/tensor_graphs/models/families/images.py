"""Parts of convolutional networks, written in one spelling."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from environments.tensor_graphs.models.builder import Builder
from environments.tensor_graphs.models.families.exporter import Exporter
from environments.tensor_graphs.models.families.spelling import pick

_CLASSES = 32
Kernel = tuple[int, int]


class Images:
    """Adds layers of a convolutional network to a model; the image's name is always `x`.

    Attributes:
      export: adds all other layers.
      random: draws what the network computes.
      activation: the one that the network uses most.
    """

    def __init__(self, build: Builder, random: np.random.Generator) -> None:
        self.export = Exporter(build, random)
        self.build = build
        self.random = random
        self.activation = pick(random, ["relu", "relu", "relu", "relu6", "hard_swish", "silu"])
        self.has_norms = pick(random, [True, True, True, False])

    def enter(self) -> tuple[str, int]:
        """Add the input and the first layer; returns its output and the number of channels."""
        size = pick(self.random, [16, 24, 32, 32, 48, 64, 64, 112])
        image = self.build.input("image", [self.build.batch, 3, size, size])
        channels = pick(self.random, [8, 16, 16, 24, 32, 48, 64])
        kernel = pick(self.random, [3, 3, 5, 7])
        stride = 2 if size > 32 else 1
        x = self.layer(image, (3, channels), (kernel, kernel), stride=stride)
        if size > 64 or self.random.random() < 0.3:
            x = self.build.max_pool(x, 3, 2, pad=1)
        return x, channels

    def activate(self, x: str) -> str:
        """Add the activation."""
        return self.export.activate(self.activation, x)

    def conv(self, x: str, channels: tuple[int, int], kernel: Kernel, **settings: Any) -> str:
        """Add a convolution with its normalisation, if the network has them, folded or not."""
        spelling = self.export.spelling
        if not self.has_norms or spelling.folded:
            return self.build.conv(x, channels, kernel, bias=True, **settings)
        x = self.build.conv(x, channels, kernel, bias=spelling.conv_bias, **settings)
        return self.build.batch_norm(x, channels[1])

    def layer(self, x: str, channels: tuple[int, int], kernel: Kernel, **settings: Any) -> str:
        """Add a convolution with its normalisation and the activation."""
        return self.export.with_leftovers(self.activate(self.conv(x, channels, kernel, **settings)))

    def mean_pool(self, x: str, kernel: int, stride: int = 1) -> str:
        """Add means over square windows."""
        return self.build.node(
            "AveragePool", x, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4,
            strides=[stride] * 2, count_include_pad=1,
        )  # fmt: skip

    def mean(self, x: str) -> str:
        """Add the mean over the image: [N, C, H, W] -> [N, C, 1, 1]."""
        if self.export.spelling.mean == "ReduceMean":
            return self.export.mean(x, 2, 3)
        return self.build.node("GlobalAveragePool", x)

    def excited(self, x: str, channels: int) -> str:
        """Scale each channel by what a small network computes of the means of all channels."""
        build, narrow = self.build, max(channels // 4, 4)
        y = build.relu(build.conv(self.mean(x), (channels, narrow), (1, 1), bias=True))
        y = build.conv(y, (narrow, channels), (1, 1), bias=True)
        y = build.node(pick(self.random, ["Sigmoid", "HardSigmoid"]), y)
        return build.node("Mul", *((y, x) if self.export.spelling.bias_first else (x, y)))

    def finish(self, x: str, channels: int) -> onnx.ModelProto:
        """Add a classifier, and return the model."""
        self.build.scope = "classes"
        x, kind = self.mean(x), self.export.spelling.flatten
        if kind == "Flatten":
            x = self.build.node("Flatten", x, axis=1)
        elif kind == "Reshape":
            x = self.export.reshaped(x, channels)
        else:
            x = self.build.node("Squeeze", x, self.build.integers(2, 3))
        x = self.export.with_leftovers(x)
        x = self.export.linear(x, channels, _CLASSES, "classes")
        return self.build.finish(classes=(x, [self.build.batch, _CLASSES]))
