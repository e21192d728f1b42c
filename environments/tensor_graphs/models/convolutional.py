"""ResNet, ResNeXt, SqueezeNet and RepVGG for images of 224 x 224 pixels; InceptionV3 for 299."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from environments.tensor_graphs.models.builder import Builder

_CLASSES = 1000
_SQUEEZENET_FIRES: tuple[tuple[int, int, int] | str, ...] = (
    (64, 16, 64), (128, 16, 64), "pool", (128, 32, 128), (256, 32, 128), "pool",
    (256, 48, 192), (384, 48, 192), (384, 64, 256), (512, 64, 256),
)  # fmt: skip
"""Numbers of channels: of the input, squeezed, and of each of the two expanding convolutions."""

Row = Sequence[Any]
"""Layers, one after another: the channels of the output, height and width of the kernel, and the
stride if there is no padding; "mean" or "max" for a pool; or a list of rows that are joined."""

_SIDES = [[(384, 1, 3)], [(384, 3, 1)]]
_INCEPTION_BLOCKS: Sequence[tuple[str, Row, int]] = (
    ("", ((32, 3, 3, 2), (32, 3, 3, 1), (64, 3, 3), "max", (80, 1, 1), (192, 3, 3, 1), "max"), 192),
    *(
        (f"Mixed_5{name}", [[
            [(64, 1, 1)],
            [(48, 1, 1), (64, 5, 5)],
            [(64, 1, 1), (96, 3, 3), (96, 3, 3)],
            ["mean", (pooled, 1, 1)],
        ]], 224 + pooled)
        for name, pooled in (("b", 32), ("c", 64), ("d", 64))
    ),
    ("Mixed_6a", [[
        [(384, 3, 3, 2)],
        [(64, 1, 1), (96, 3, 3), (96, 3, 3, 2)],
        ["max"],
    ]], 768),
    *(
        (f"Mixed_6{name}", [[
            [(192, 1, 1)],
            [(inner, 1, 1), (inner, 1, 7), (192, 7, 1)],
            [(inner, 1, 1), (inner, 7, 1), (inner, 1, 7), (inner, 7, 1), (192, 1, 7)],
            ["mean", (192, 1, 1)],
        ]], 768)
        for name, inner in (("b", 128), ("c", 160), ("d", 160), ("e", 192))
    ),
    ("Mixed_7a", [[
        [(192, 1, 1), (320, 3, 3, 2)],
        [(192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3, 2)],
        ["max"],
    ]], 1280),
    *(
        (f"Mixed_7{name}", [[
            [(320, 1, 1)],
            [(384, 1, 1), _SIDES],
            [(448, 1, 1), (384, 3, 3), _SIDES],
            ["mean", (192, 1, 1)],
        ]], 2048)
        for name in "bc"
    ),
)  # fmt: skip


def resnet(
    build: Builder, blocks: Sequence[int], bottleneck: tuple[int, int] | None = None
) -> onnx.ModelProto:
    """Build a ResNet of so many blocks with shortcuts in each stage.

    Blocks are two 3 x 3 convolutions; or, with a bottleneck of (groups, channels of each), 1 x 1,
    grouped 3 x 3 and 1 x 1 convolutions.
    """
    x = build.input("image", [build.batch, 3, 224, 224])
    x = build.max_pool(_conv_norm_relu(build, x, (3, 64), 7, 2), 3, 2, pad=1)
    channels = 64
    for stage, count in enumerate(blocks):
        for block in range(count):
            build.scope = f"layer{stage + 1}.{block}"
            stride = 2 if stage and not block else 1
            if bottleneck is None:
                out = 64 << stage
                y = _conv_norm_relu(build, x, (channels, out), 3, stride)
                y = _conv_norm(build, y, (out, out), 3, scale=0.5)
            else:
                groups, width = bottleneck
                inner, out = (groups * width) << stage, 256 << stage
                y = _conv_norm_relu(build, x, (channels, inner), 1)
                y = _conv_norm_relu(build, y, (inner, inner), 3, stride, groups)
                y = _conv_norm(build, y, (inner, out), 1, scale=0.5)
            if channels != out:
                x = _conv_norm(build, x, (channels, out), 1, stride)
            x, channels = build.relu(build.node("Add", y, x)), out
    return _classified(build, x, channels)


def squeezenet(build: Builder) -> onnx.ModelProto:
    """Build SqueezeNet of fire modules: squeeze by 1 x 1, expand by 1 x 1 and 3 x 3, and concat."""
    x = build.input("image", [build.batch, 3, 224, 224])
    x = build.relu(build.conv(x, (3, 64), (3, 3), bias=True, stride=2, pads=(0, 0)))
    x = build.max_pool(x, 3, 2, ceil=True)
    for number, fire in enumerate(_SQUEEZENET_FIRES):
        build.scope = f"features.{number}"
        if isinstance(fire, str):
            x = build.max_pool(x, 3, 2, ceil=True)
            continue
        channels, squeezed, out = fire
        x = build.relu(build.conv(x, (channels, squeezed), (1, 1), bias=True))
        sides = [
            build.relu(build.conv(x, (squeezed, out), (kernel, kernel), bias=True))
            for kernel in (1, 3)
        ]
        x = build.node("Concat", *sides, axis=1)
    build.scope = "classifier"
    x = build.relu(build.conv(x, (512, _CLASSES), (1, 1), bias=True))
    x = build.node("Flatten", build.node("GlobalAveragePool", x), axis=1)
    return build.finish(logits=(x, [build.batch, _CLASSES]))


def repvgg(build: Builder, blocks: Sequence[int], channels: Sequence[int]) -> onnx.ModelProto:
    """Build RepVGG as it is trained: each layer is a sum of two or three branches."""
    build.scope = "stage0"
    size = min(64, channels[0])
    image = build.input("image", [build.batch, 3, 224, 224])
    x = _repvgg_block(build, image, (3, size), stride=2)
    for stage, (count, out) in enumerate(zip(blocks, channels, strict=True)):
        for block in range(count):
            build.scope = f"stage{stage + 1}.{block}"
            x, size = _repvgg_block(build, x, (size, out), stride=1 if block else 2), out
    return _classified(build, x, size)


def _repvgg_block(build: Builder, x: str, channels: tuple[int, int], stride: int) -> str:
    """Add Relu(norm(conv 3x3) + norm(conv 1x1) [+ norm(x)])."""
    y = _conv_norm(build, x, channels, 3, stride, scale=0.7)
    y = build.node("Add", y, _conv_norm(build, x, channels, 1, stride, scale=0.5))
    if stride == 1 and channels[0] == channels[1]:
        y = build.node("Add", y, build.batch_norm(x, channels[0], scale=0.5))
    return build.relu(y)


def inception_v3(build: Builder) -> onnx.ModelProto:
    """Build InceptionV3, without its auxiliary classifier; its blocks have torchvision's names."""
    x, channels = build.input("image", [build.batch, 3, 299, 299]), 3
    for name, block, out in _INCEPTION_BLOCKS:
        build.scope = name
        x, channels = _row(build, x, channels, block), out
    return _classified(build, x, channels)


def _conv_norm(
    build: Builder, x: str, channels: tuple[int, int], kernel: int, stride: int = 1,
    groups: int = 1, scale: float = 1.0,
) -> str:  # fmt: skip
    x = build.conv(x, channels, (kernel, kernel), stride=stride, groups=groups, gain=1.6)
    return build.batch_norm(x, channels[1], scale)


def _conv_norm_relu(
    build: Builder, x: str, channels: tuple[int, int], kernel: int, stride: int = 1,
    groups: int = 1,
) -> str:  # fmt: skip
    return build.relu(_conv_norm(build, x, channels, kernel, stride, groups))


def _classified(build: Builder, x: str, channels: int) -> onnx.ModelProto:
    """Add the mean over the image and a linear layer; return the model."""
    build.scope = ""
    x = build.node("Flatten", build.node("GlobalAveragePool", x), axis=1)
    weight = build.normal("fc.weight", [_CLASSES, channels], channels**-0.5)
    bias = build.normal("fc.bias", [_CLASSES], 0.1)
    logits = build.node("Gemm", x, weight, bias, alpha=1.0, beta=1.0, transB=1)
    return build.finish(logits=(logits, [build.batch, _CLASSES]))


def _row(build: Builder, x: str, channels: int, layers: Row) -> str:
    """Add layers of convolution, batch normalisation and Relu, and pools, one after another."""
    for layer in layers:
        match layer:
            case "mean":
                x = build.node(
                    "AveragePool", x, ceil_mode=0, count_include_pad=1, kernel_shape=[3, 3],
                    pads=[1, 1, 1, 1], strides=[1, 1],
                )  # fmt: skip
            case "max":
                x = build.max_pool(x, 3, 2)
            case list():
                rows = [_row(build, x, channels, row) for row in layer]
                x = build.node("Concat", *rows, axis=1)
            case (out, height, width, *stride):
                x = build.conv(
                    x, (channels, out), (height, width), stride=stride[0] if stride else 1,
                    pads=(0, 0) if stride else None, gain=1.6,
                )  # fmt: skip
                x, channels = build.relu(build.batch_norm(x, out)), out
    return x
