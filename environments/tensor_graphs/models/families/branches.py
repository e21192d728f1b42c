"""Networks whose blocks have branches side by side, drawn at random."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import onnx

from environments.tensor_graphs.models.builder import Builder
from environments.tensor_graphs.models.families.convolutions import Images, Kernel
from environments.tensor_graphs.models.families.exporter import ACTIVATIONS, Exporter, pick

_KERNELS: Sequence[Kernel] = ((1, 1), (3, 3), (1, 3), (3, 1), (5, 5))
_ROWS: Sequence[Sequence[Kernel]] = (
    [(1, 1)], [(3, 3)], [(1, 1), (3, 3)], [(1, 1), (5, 5)], [(1, 1), (1, 3), (3, 1)],
    [(1, 1), (3, 3), (3, 3)],
)  # fmt: skip
_WIDTHS = (32, 64, 128, 256, 512)


def branched(build: Builder, random: np.random.Generator) -> onnx.ModelProto:
    """Build a network of branches: one for images, or one of linear layers."""
    if random.random() < 0.25:
        return _linear_branches(build, random)
    images = Images(build, random)
    x, channels = images.enter()
    block = pick(random, [_sum, _concat, _fire])
    for number in range(pick(random, [2, 3, 4])):
        build.scope = f"block.{number}"
        x, channels = block(images, x, channels)
        if random.random() < 0.3:
            x = build.max_pool(x, 3, 2, pad=1)
    return images.finish(x, channels)


def _sum(images: Images, x: str, channels: int) -> tuple[str, int]:
    """Add two to four branches that are added up, as in RepVGG and its successors."""
    build, random = images.build, images.random
    out = min(channels * pick(random, [1, 1, 2]), 128)
    stride = pick(random, [1, 1, 2])

    def branch(kernel: Kernel) -> str:
        return images.conv(x, (channels, out), kernel, stride=stride)

    makers: list[Callable[[], str]] = [functools.partial(branch, kernel) for kernel in _KERNELS[:4]]
    makers.append(lambda: images.conv(branch((1, 1)), (out, out), (3, 3)))
    makers.append(lambda: images.conv(images.mean_pool(x, 3, stride), (channels, out), (1, 1)))
    if (channels, stride) == (out, 1):
        makers += [lambda: build.batch_norm(x, channels, scale=0.5), lambda: x]
    chosen = random.permutation(len(makers))[: pick(random, [2, 3, 3, 4])]
    y, *others = [makers[number]() for number in chosen]
    for summand in others:
        y = build.node("Add", y, summand)
    return images.activate(y), out


def _concat(images: Images, x: str, channels: int) -> tuple[str, int]:
    """Add two to four rows of convolutions whose outputs are joined, as in Inception."""
    random, total = images.random, 0
    outputs: list[str] = []
    for _ in range(pick(random, [2, 3, 4])):
        out, y, size = pick(random, [8, 16, 32, 48]), x, channels
        if random.random() < 0.2:
            y = images.mean_pool(y, 3)
        for kernel in pick(random, _ROWS):
            y, size = images.layer(y, (size, out), kernel), out
        outputs, total = [*outputs, y], total + out
    return images.build.node("Concat", *outputs, axis=1), total


def _fire(images: Images, x: str, channels: int) -> tuple[str, int]:
    """Squeeze by 1 x 1, and expand by two to four other windows; never 1 x 1 and 3 x 3 alone."""
    random, narrow = images.random, pick(images.random, [8, 16, 32])
    x = images.layer(x, (channels, narrow), (1, 1))
    count, out = pick(random, [2, 3, 4]), pick(random, [16, 32, 48])
    kernels = [_KERNELS[number] for number in random.permutation(len(_KERNELS))[:count]]
    if {*kernels} == {(1, 1), (3, 3)}:
        kernels.append((5, 5))
    groups = pick(random, [1, 1, 2])
    early = pick(random, [True, False])
    layer = images.layer if early else images.conv
    sides = [layer(x, (narrow, out), kernel, groups=groups) for kernel in kernels]
    y = images.build.node("Concat", *sides, axis=1)
    return y if early else images.activate(y), out * len(kernels)


def _linear_branches(build: Builder, random: np.random.Generator) -> onnx.ModelProto:
    """Build blocks of linear layers of the same input, which are joined, added or multiplied."""
    rows, size = pick(random, [1, 16, 64, 128]), pick(random, _WIDTHS)
    export = Exporter(build, random, rows)
    x = build.input("x", [build.batch, rows, size])
    wide = size // pick(random, [1, 2, 4])
    joint = pick(random, ["Concat", "Add", "Mul"])
    activation = pick(random, ACTIVATIONS)
    count = pick(random, [2, 3, 4])
    for block in range(2 if size > 256 else pick(random, [3, 4])):
        build.scope = f"block.{block}"
        y = export.norm(x, size) if random.random() < 0.5 else x
        parts = [export.linear(y, size, wide, f"part.{number}") for number in range(count)]
        parts = [export.activate(activation, part) for part in parts[:-1]] + parts[-1:]
        if joint == "Concat":
            y = build.node("Concat", *parts, axis=2)
        else:
            y = functools.reduce(functools.partial(build.node, joint), parts)
        y = export.linear(y, wide * count if joint == "Concat" else wide, size, "joined")
        x = build.node("Add", x, y)
    return build.finish(y=(x, [build.batch, rows, size]))
