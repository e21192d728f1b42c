"""Convolutional networks of one block after another, drawn at random, and their parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from environments.tensor_graphs.models.builder import Builder
from environments.tensor_graphs.models.families.exporter import Exporter, pick

_CLASSES = 32
Kernel = tuple[int, int]


class Images:
    """Adds layers of a convolutional network to a model, most of them with one activation."""

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


_MAX_CHANNELS = 256


def convolutional(build: Builder, random: np.random.Generator) -> onnx.ModelProto:
    """Build a network of three or four blocks of one kind or two."""
    images = Images(build, random)
    x, channels = images.enter()
    kinds = [pick(random, list(_BLOCKS)) for _ in range(2)]
    for number in range(pick(random, [3, 4])):
        build.scope = f"block.{number}"
        stride = pick(random, [1, 1, 2])
        out = min(channels * pick(random, [1, 2] if stride == 2 else [1, 1, 2]), _MAX_CHANNELS)
        x, channels = _BLOCKS[pick(random, kinds)](images, x, channels, out, stride), out
    return images.finish(x, channels)


def _plain(images: Images, x: str, channels: int, out: int, stride: int) -> str:
    """Add convolutions without a shortcut, as in VGG; a pool instead of a stride."""
    for _ in range(pick(images.random, [1, 2])):
        kernel = pick(images.random, [3, 3, 5])
        x, channels = images.layer(x, (channels, out), (kernel, kernel)), out
    return images.build.max_pool(x, 2, 2) if stride == 2 else x


def _residual(images: Images, x: str, channels: int, out: int, stride: int) -> str:
    y = images.layer(x, (channels, out), (3, 3), stride=stride)
    y = images.conv(y, (out, out), (3, 3))
    return images.activate(images.build.node("Add", y, _shortcut(images, x, channels, out, stride)))


def _preactivated(images: Images, x: str, channels: int, out: int, stride: int) -> str:
    """Add two convolutions, each of which follows its normalisation and activation."""
    build = images.build
    y = images.activate(build.batch_norm(x, channels))
    y = build.conv(y, (channels, out), (3, 3), stride=stride)
    y = build.conv(images.activate(build.batch_norm(y, out)), (out, out), (3, 3))
    return build.node("Add", _shortcut(images, x, channels, out, stride), y)


def _inverted(images: Images, x: str, channels: int, out: int, stride: int) -> str:
    """Add a depthwise convolution between one that widens and one that narrows (MobileNet)."""
    wide, kernel = min(channels * pick(images.random, [2, 3, 4]), 256), pick(images.random, [3, 5])
    y = images.layer(x, (channels, wide), (1, 1))
    y = images.layer(y, (wide, wide), (kernel, kernel), stride=stride, groups=wide)
    y = images.excited(y, wide) if images.random.random() < 0.4 else y
    y = images.conv(y, (wide, out), (1, 1))
    return images.build.node("Add", x, y) if (channels, stride) == (out, 1) else y


def _excited(images: Images, x: str, channels: int, out: int, stride: int) -> str:
    """Add a grouped bottleneck whose channels are scaled, beside a shortcut."""
    narrow = max(out // 2, 8)
    y = images.layer(x, (channels, narrow), (1, 1))
    y = images.layer(y, (narrow, narrow), (3, 3), stride=stride, groups=narrow // 4)
    y = images.excited(images.conv(y, (narrow, out), (1, 1)), out)
    return images.activate(images.build.node("Add", y, _shortcut(images, x, channels, out, stride)))


def _separable(images: Images, x: str, channels: int, out: int, stride: int) -> str:
    """Add depthwise convolutions, each with a pointwise one."""
    for number in range(2):
        x = images.layer(
            x, (channels, channels), (3, 3), groups=channels, stride=1 if number else stride
        )
        x, channels = images.layer(x, (channels, out), (1, 1)), out
    return x


def _dense(images: Images, x: str, channels: int, out: int, stride: int) -> str:
    """Add convolutions of all that came before, as in DenseNet."""
    growth = pick(images.random, [8, 16, 32])
    for _ in range(2):
        y = images.layer(x, (channels, growth), (3, 3))
        x, channels = images.build.node("Concat", x, y, axis=1), channels + growth
    x = images.layer(x, (channels, out), (1, 1))
    return images.mean_pool(x, 3, 2) if stride == 2 else x


def _shortcut(images: Images, x: str, channels: int, out: int, stride: int) -> str:
    if (channels, stride) == (out, 1):
        return x
    if stride == 2 and images.random.random() < 0.5:
        x, stride = images.mean_pool(x, 3, 2), 1
    return images.conv(x, (channels, out), (1, 1), stride=stride)


_BLOCKS: Mapping[str, Callable[[Images, str, int, int, int], str]] = {
    "plain": _plain,
    "residual": _residual,
    "preactivated": _preactivated,
    "inverted": _inverted,
    "excited": _excited,
    "separable": _separable,
    "dense": _dense,
}
"""Each adds a block: (images, x, its channels, channels of the output, stride) -> output."""
