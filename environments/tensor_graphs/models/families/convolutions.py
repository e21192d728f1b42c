"""Convolutional networks of one block after another, drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from environments.tensor_graphs.models.builder import Builder
from environments.tensor_graphs.models.families.images import Images
from environments.tensor_graphs.models.families.spelling import pick

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
    """Add two convolutions beside a shortcut."""
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
