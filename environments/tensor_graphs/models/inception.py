"""InceptionV3 for images of 299 x 299 pixels, without its auxiliary classifier."""

from __future__ import annotations

import onnx

from environments.tensor_graphs.models.builder import Builder

_CLASSES = 1000
Layer = tuple[int, int, int] | tuple[int, int, int, int]
"""Channels of the output, height and width of the kernel, and the stride if `_row` needs it."""


def inception_v3(build: Builder) -> onnx.ModelProto:
    """Build InceptionV3; its blocks have torchvision's names."""
    x = build.input("image", [build.batch, 3, 299, 299])
    x = _row(build, x, 3, (32, 3, 3, 2), (32, 3, 3, -1), (64, 3, 3))
    x = build.max_pool(x, 3, 2)
    x = build.max_pool(_row(build, x, 64, (80, 1, 1), (192, 3, 3, -1)), 3, 2)
    channels = 192
    for number, pooled in enumerate((32, 64, 64)):
        build.scope = f"Mixed_5{'bcd'[number]}"
        x, channels = _block_a(build, x, channels, pooled), 224 + pooled
    build.scope = "Mixed_6a"
    x, channels = _block_b(build, x, channels), 768
    for number, inner in enumerate((128, 160, 160, 192)):
        build.scope = f"Mixed_6{'bcde'[number]}"
        x = _block_c(build, x, channels, inner)
    build.scope = "Mixed_7a"
    x, channels = _block_d(build, x, channels), 1280
    for number in range(2):
        build.scope = f"Mixed_7{'bc'[number]}"
        x, channels = _block_e(build, x, channels), 2048
    build.scope = ""
    return build.finish(logits=(build.classify(x, channels), [build.batch, _CLASSES]))


def _block_a(build: Builder, x: str, channels: int, pooled: int) -> str:
    return _concat(
        build,
        _row(build, x, channels, (64, 1, 1)),
        _row(build, x, channels, (48, 1, 1), (64, 5, 5)),
        _row(build, x, channels, (64, 1, 1), (96, 3, 3), (96, 3, 3)),
        _row(build, _mean(build, x), channels, (pooled, 1, 1)),
    )


def _block_b(build: Builder, x: str, channels: int) -> str:
    return _concat(
        build,
        _row(build, x, channels, (384, 3, 3, 2)),
        _row(build, x, channels, (64, 1, 1), (96, 3, 3), (96, 3, 3, 2)),
        build.max_pool(x, 3, 2),
    )


def _block_c(build: Builder, x: str, channels: int, inner: int) -> str:
    far = ((inner, 1, 1), (inner, 7, 1), (inner, 1, 7), (inner, 7, 1), (192, 1, 7))
    return _concat(
        build,
        _row(build, x, channels, (192, 1, 1)),
        _row(build, x, channels, (inner, 1, 1), (inner, 1, 7), (192, 7, 1)),
        _row(build, x, channels, *far),
        _row(build, _mean(build, x), channels, (192, 1, 1)),
    )


def _block_d(build: Builder, x: str, channels: int) -> str:
    return _concat(
        build,
        _row(build, x, channels, (192, 1, 1), (320, 3, 3, 2)),
        _row(build, x, channels, (192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3, 2)),
        build.max_pool(x, 3, 2),
    )


def _block_e(build: Builder, x: str, channels: int) -> str:
    def both(y: str, size: int) -> str:
        sides = (_row(build, y, size, (384, 1, 3)), _row(build, y, size, (384, 3, 1)))
        return _concat(build, *sides)

    return _concat(
        build,
        _row(build, x, channels, (320, 1, 1)),
        both(_row(build, x, channels, (384, 1, 1)), 384),
        both(_row(build, x, channels, (448, 1, 1), (384, 3, 3)), 384),
        _row(build, _mean(build, x), channels, (192, 1, 1)),
    )


def _row(build: Builder, x: str, channels: int, *layers: Layer) -> str:
    """Add layers of convolution, batch normalisation and Relu, one after another.

    A layer with a stride has no padding; a stride of -1 stands for 1 without padding.
    """
    for out, height, width, *rest in layers:
        stride = rest[0] if rest else 1
        pads = (0, 0) if rest else None
        x = build.conv(x, (channels, out), (height, width), stride=abs(stride), pads=pads, gain=1.6)
        x, channels = build.relu(build.batch_norm(x, out)), out
    return x


def _mean(build: Builder, x: str) -> str:
    return build.node(
        "AveragePool", x, ceil_mode=0, count_include_pad=1, kernel_shape=[3, 3],
        pads=[1, 1, 1, 1], strides=[1, 1],
    )  # fmt: skip


def _concat(build: Builder, *parts: str) -> str:
    return build.node("Concat", *parts, axis=1)
