"""Transformers, and networks with adapters, drawn at random."""

from __future__ import annotations

import math
import types
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto

from environments.tensor_graphs.models.builder import Builder
from environments.tensor_graphs.models.families.exporter import ACTIVATIONS, Exporter, pick

_WIDTHS = (32, 64, 64, 96, 128, 128, 192, 256, 384, 512, 768)
_VOCABULARY = 256
_CLASSES = 32

Linear = Callable[[str, int, int, str], str]
"""Adds a linear layer: (x, size of the input, size of the output, name) -> output."""


Design = types.SimpleNamespace
"""What a transformer computes, however it is written; see `draw_design`."""


def draw_design(random: np.random.Generator) -> Design:
    """Draw a design; no design is that of BERT, which normalises after and has a gelu."""
    hidden = pick(random, _WIDTHS)
    # Normalisations come before or after attention, or attention and the layers after it are added
    # beside each other.
    order = pick(random, ["before", "before", "after", "beside"])
    small = [1, 2, 2, 3] if hidden < 192 else [1, 2] if hidden < 384 else [1]
    ratios = [1, 2, 3, 4] if hidden < 384 else [1, 2]
    return Design(
        tokens=pick(random, [4, 16, 16, 36, 64, 64, 100, 144]),
        hidden=hidden,
        heads=hidden // pick(random, [16, 32]),
        layers=pick(random, small),
        wide=hidden * pick(random, ratios),  # between the two layers that follow attention
        order=order,
        activation=pick(random, [a for a in ACTIVATIONS if (order, a) != ("after", "gelu")]),
        gated=pick(random, [True, False, False]),  # the activation multiplies a third layer
        rms=pick(random, [True, False, False]),  # normalisations by the root mean square alone
        shared_key=pick(random, [True, False, False, False]),  # and value, by all heads
        mask=pick(random, ["none", "none", "causal", "input"]),
        # Of hidden states, of the embeddings of numbers, or of patches of an image.
        entry=pick(random, ["states", "states", "numbers", "patches"]),
        # All states are returned, or classes of the mean or first token.
        end=pick(random, ["states", "mean", "first"]),
    )


class AdaptedLinear:
    """Adds linear layers: of most models some have adapters x A B s, and others have none.

    Rank, number and form of the adapters are drawn. Each name of a layer is adapted alike in all
    blocks. The first name is always adapted, and the second one never.
    """

    def __init__(self, export: Exporter, random: np.random.Generator) -> None:
        self._export = export
        self._random = random
        self._rank = pick(random, [2, 4, 8, 16, 32, 64])
        self._num_adapters = pick(random, [1, 1, 1, 2])
        self._form = pick(random, ["beside", "beside", "beside", "product", "bottleneck"])
        self._scaled = pick(random, ["input", "inside", "output", "nothing"])
        self._is_adapted: dict[str, bool] = {}

    def __call__(self, x: str, size_in: int, size_out: int, name: str) -> str:
        """Add a linear layer: [*rows, size_in] -> [*rows, size_out]."""
        y = self._export.linear(x, size_in, size_out, name)
        if name not in self._is_adapted:
            drawn = self._random.random() < 0.5
            first_two = {0: True, 1: False}
            self._is_adapted[name] = first_two.get(len(self._is_adapted), drawn)
        if self._is_adapted[name]:
            for _ in range(self._num_adapters):
                y = self._with_adapter(x, y, size_in, size_out, name)
        return y

    def _with_adapter(self, x: str, y: str, size_in: int, size_out: int, name: str) -> str:
        """Add an adapter of x, or of the layer's output y if it is a bottleneck."""
        export, build, rank = self._export, self._export.build, self._rank
        if self._form == "bottleneck":
            down = export.activate("relu", export.linear(y, size_out, rank, f"{name}.down"))
            return build.node("Add", y, export.linear(down, rank, size_out, f"{name}.up"))
        down = build.normal(f"{name}.A", [size_in, rank], size_in**-0.5)
        up = build.normal(f"{name}.B", [rank, size_out], rank**-0.5)
        scaled = self._scaled
        x = export.scaled(x, 0.5) if scaled == "input" else x
        if self._form == "product":
            part = build.node("MatMul", x, build.node("MatMul", down, up))
        else:
            part = build.node("MatMul", x, down)
            part = export.scaled(part, 0.5) if scaled == "inside" else part
            part = build.node("MatMul", part, up)
        part = export.scaled(part, 0.5) if scaled == "output" else part
        return build.node("Add", *((part, y) if export.spelling.bias_first else (y, part)))


def transformer(build: Builder, random: np.random.Generator) -> onnx.ModelProto:
    """Build a transformer."""
    design = draw_design(random)
    export = Exporter(build, random, design.tokens)
    return _Transformer(design, export, export.linear).build()


def adapted(build: Builder, random: np.random.Generator) -> onnx.ModelProto:
    """Build a transformer, or a stack of linear layers, in which some matrices have adapters."""
    design = draw_design(random)
    design.layers = min(design.layers, 2)
    export = Exporter(build, random, design.tokens)
    linear = AdaptedLinear(export, random)
    model = _Transformer(design, export, linear)
    return model.build_without_attention() if random.random() < 0.4 else model.build()


class _Transformer:
    """Builds one design in one spelling."""

    def __init__(self, design: Design, export: Exporter, linear: Linear) -> None:
        self._design, self._export, self._linear = design, export, linear

    def build(self) -> onnx.ModelProto:
        """Build the whole model."""
        build, design = self._export.build, self._design
        x, mask = self._enter(), self._mask()
        for layer in range(design.layers):
            build.scope = f"layer.{layer}"
            if design.order == "before":
                x = build.node("Add", x, self._attention(self._norm(x), mask))
                x = build.node("Add", x, self._feed_forward(self._norm(x)))
            elif design.order == "after":
                x = self._norm(build.node("Add", self._attention(x, mask), x))
                x = self._norm(build.node("Add", self._feed_forward(x), x))
            else:
                y = self._norm(x)
                y = build.node("Add", self._attention(y, mask), self._feed_forward(y))
                x = build.node("Add", x, y)
        return self._finish(x)

    def build_without_attention(self) -> onnx.ModelProto:
        """Build the model without its attentions."""
        build, design = self._export.build, self._design
        x = self._enter()
        for layer in range(design.layers + 1):
            build.scope = f"layer.{layer}"
            y = self._feed_forward(self._norm(x) if design.order == "before" else x)
            x = build.node("Add", y, x)
            x = self._norm(x) if design.order == "after" else x
        return self._finish(x)

    def _enter(self) -> str:
        export, build, design = self._export, self._export.build, self._design
        build.scope = "entry"
        if design.entry == "states":
            return build.input("states", [build.batch, design.tokens, design.hidden])
        if design.entry == "numbers":
            numbers = build.input("numbers", [build.batch, design.tokens], TensorProto.INT64)
            words = build.normal("words.weight", [_VOCABULARY, design.hidden], 1)
            x = build.node("Gather", words, numbers)
        else:
            size = 4 * math.isqrt(design.tokens)
            image = build.input("image", [build.batch, 3, size, size])
            x = build.conv(image, (3, design.hidden), (4, 4), bias=True, stride=4, pads=(0, 0))
            shape = build.integers(export.rows[0], design.hidden, design.tokens)
            x = build.node("Transpose", build.node("Reshape", x, shape), perm=[0, 2, 1])
        positions = build.normal("positions", [1, design.tokens, design.hidden], 0.3)
        return export.with_leftovers(export.commuted("Add", x, positions))

    def _mask(self) -> str | None:
        """Add what is added to scores: 0 where attention is allowed, else a large negative."""
        build, tokens = self._export.build, self._design.tokens
        if self._design.mask == "none":
            return None
        if self._design.mask == "causal":
            return build.weight("mask", np.triu(np.full((1, 1, tokens, tokens), -1e4, "f4"), 1))
        mask = build.input("mask", [build.batch, tokens], TensorProto.INT64)
        mask = build.node("Cast", build.node("Unsqueeze", mask, build.integers(1, 2)), to=1)
        return self._export.scaled(build.node("Sub", build.scalar(1), mask), -1e4)

    def _norm(self, x: str) -> str:
        return self._export.norm(x, self._design.hidden, self._design.rms)

    def _feed_forward(self, x: str) -> str:
        export, design = self._export, self._design
        wide = export.activate(design.activation, self._linear(x, design.hidden, design.wide, "up"))
        if design.gated:
            gate = self._linear(x, design.hidden, design.wide, "gate")
            wide = export.build.node("Mul", wide, gate)
        return export.with_leftovers(self._linear(wide, design.wide, design.hidden, "down"))

    def _attention(self, x: str, mask: str | None) -> str:
        """Add attention with several heads: [N, T, hidden] -> [N, T, hidden]."""
        export, build, design = self._export, self._export.build, self._design
        size = design.hidden // design.heads
        query, key, value = self._heads(x, size)
        scaled, half = export.spelling.scaled, size**-0.25
        if scaled in ("query", "both"):
            query = export.scaled(query, half if scaled == "both" else half**2)
        if scaled in ("key", "both"):
            key = export.scaled(key, half if scaled == "both" else half**2)
        scores = build.node("MatMul", query, key)
        if scaled == "scores":
            scores = export.scaled(scores, half**2)
        if mask is not None:
            scores = build.node("Add", scores, mask)
        weights = export.with_leftovers(build.node("Softmax", scores, axis=-1))
        mixed = build.node("Transpose", build.node("MatMul", weights, value), perm=[0, 2, 1, 3])
        joined = export.reshaped(mixed, design.hidden)
        return export.with_leftovers(self._linear(joined, design.hidden, design.hidden, "joined"))

    def _heads(self, x: str, size: int) -> tuple[str, str, str]:
        """Add query [N, heads, T, size], key [N, heads, size, T] and value, as query."""
        export, build, design = self._export, self._export.build, self._design
        if design.shared_key or export.spelling.projections == "three":
            return self._separate_heads(x, size)
        packed = self._linear(x, design.hidden, 3 * design.hidden, "packed")
        if export.spelling.projections == "Split":
            sizes = build.integers(*[design.hidden] * 3)
            parts = build.nodes("Split", 3, packed, sizes, axis=2)
            query, key, value = (export.reshaped(part, design.heads, size) for part in parts)
            return self._turned(query), self._turned_key(key), self._turned(value)
        split = export.reshaped(packed, 3, design.heads, size)
        split = build.node("Transpose", split, perm=[2, 0, 3, 1, 4])
        query, key, value = (
            build.node("Gather", split, build.scalar(part, np.int64), axis=0) for part in range(3)
        )
        return query, build.node("Transpose", key, perm=[0, 1, 3, 2]), value

    def _separate_heads(self, x: str, size: int) -> tuple[str, str, str]:
        design = self._design

        def part(name: str, heads: int) -> str:
            y = self._linear(x, design.hidden, heads * size, name)
            return self._export.reshaped(y, heads, size)

        others = 1 if design.shared_key else design.heads
        query, key = part("query", design.heads), part("key", others)
        value = part("value", others)
        return self._turned(query), self._turned_key(key), self._turned(value)

    def _turned(self, x: str) -> str:
        return self._export.build.node("Transpose", x, perm=[0, 2, 1, 3])

    def _turned_key(self, x: str) -> str:
        build = self._export.build
        if self._export.spelling.key == "once":
            return build.node("Transpose", x, perm=[0, 2, 3, 1])
        return build.node("Transpose", self._turned(x), perm=[0, 1, 3, 2])

    def _finish(self, x: str) -> onnx.ModelProto:
        export, build, design = self._export, self._export.build, self._design
        build.scope = "end"
        x = self._norm(x) if design.order != "after" else x
        shape = [build.batch, design.tokens, design.hidden]
        if design.end == "states":
            return build.finish(states_out=(x, shape))
        if design.end == "mean":
            x = export.mean(x, 1, keepdims=0)
        else:
            x = build.node("Gather", x, build.scalar(0, np.int64), axis=1)
        weight = build.normal("classes.weight", [_CLASSES, design.hidden], design.hidden**-0.5)
        bias = build.normal("classes.bias", [_CLASSES], 0.1)
        x = build.node("Gemm", x, weight, bias, transB=1)
        return build.finish(classes=(x, [build.batch, _CLASSES]))
