"""BERT, and a transformer with LoRA adapters."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto

from environments.tensor_graphs.models.builder import Builder

_TOKENS = 128
_VOCABULARY = 30522
_FIRST_OPSET_WITH_LAYER_NORM = 17

Linear = Callable[[str, int, int, str], str]
"""Adds a linear layer: (x, size of the input, size of the output, name) -> output."""


def bert(build: Builder, layers: int, hidden: int, heads: int) -> onnx.ModelProto:
    """Build BERT with an attention mask; it returns the last hidden state and the pooled token."""
    shape = [build.batch, _TOKENS]
    names = ("input_ids", "attention_mask", "token_type_ids")
    ids, mask, kinds = (build.input(name, shape, TensorProto.INT64) for name in names)
    mask = _extended_mask(build, mask)
    x = _embeddings(build, ids, kinds, hidden)
    linear = functools.partial(_linear, build)
    for layer in range(layers):
        build.scope = f"encoder/layer.{layer}/attention"
        mixed = _attention(build, x, mask, hidden, heads, linear)
        x = _layer_norm(build, build.node("Add", mixed, x), hidden)
        build.scope = f"encoder/layer.{layer}"
        wide = _gelu(build, linear(x, hidden, 4 * hidden, "intermediate"))
        narrow = linear(wide, 4 * hidden, hidden, "output")
        x = _layer_norm(build, build.node("Add", narrow, x), hidden)
    build.scope = "pooler"
    first = build.node("Gather", x, build.scalar(0, np.int64), axis=1)
    weight = build.normal("dense.weight", [hidden, hidden], hidden**-0.5)
    pooled = build.node("Gemm", first, weight, build.normal("dense.bias", [hidden], 0.02),
                        transB=1)  # fmt: skip
    return build.finish(
        last_hidden_state=(x, [*shape, hidden]),
        pooler_output=(build.node("Tanh", pooled), [build.batch, hidden]),
    )


def lora(build: Builder, layers: int, hidden: int, heads: int, rank: int) -> onnx.ModelProto:
    """Build a pre-normalised transformer in which every matrix has a LoRA adapter."""
    shape = [build.batch, _TOKENS, hidden]
    x = build.input("embeddings", shape)
    linear = functools.partial(_adapted_linear, build, rank)
    for layer in range(layers):
        build.scope = f"layer.{layer}/attention"
        mixed = _attention(build, _layer_norm(build, x, hidden), None, hidden, heads, linear)
        x = build.node("Add", x, mixed)
        build.scope = f"layer.{layer}/mlp"
        wide = linear(_layer_norm(build, x, hidden), hidden, 4 * hidden, "up")
        x = build.node("Add", x, linear(_gelu(build, wide), 4 * hidden, hidden, "down"))
    build.scope = ""
    return build.finish(hidden_state=(_layer_norm(build, x, hidden), shape))


def _linear(build: Builder, x: str, size_in: int, size_out: int, name: str) -> str:
    product = _product(build, x, size_in, size_out, name)
    return build.node("Add", build.normal(f"{name}.bias", [size_out], 0.02), product)


def _adapted_linear(
    build: Builder, rank: int, x: str, size_in: int, size_out: int, name: str
) -> str:
    """LoRA: x W + b + (x A) B s with s = alpha / rank."""
    result = _linear(build, x, size_in, size_out, name)
    down = _product(build, x, size_in, rank, f"{name}.lora_A")
    up = _product(build, down, rank, size_out, f"{name}.lora_B")
    return build.node("Add", result, build.node("Mul", up, build.scalar(0.5)))


def _product(build: Builder, x: str, size_in: int, size_out: int, name: str) -> str:
    weight = build.normal(f"{name}.weight", [size_in, size_out], size_in**-0.5)
    return build.node("MatMul", x, weight)


def _embeddings(build: Builder, ids: str, kinds: str, hidden: int) -> str:
    build.scope = "embeddings"
    words = build.normal("word_embeddings.weight", [_VOCABULARY, hidden], 1)
    of_kinds = build.normal("token_type_embeddings.weight", [2, hidden], 0.3)
    positions = build.normal("position_embeddings.weight", [512, hidden], 0.3)
    x = build.node("Add", build.node("Gather", words, ids), build.node("Gather", of_kinds, kinds))
    here = build.node("Gather", positions, build.weight("position_ids", np.arange(_TOKENS)[None]))
    return _layer_norm(build, build.node("Add", x, here), hidden)


def _extended_mask(build: Builder, mask: str) -> str:
    """Add the mask [N, 1, 1, T]: 0 where attention is allowed, else a large negative number."""
    mask = build.node("Unsqueeze", build.node("Unsqueeze", mask, build.integers(1)),
                      build.integers(2))  # fmt: skip
    mask = build.node("Sub", build.scalar(1), build.node("Cast", mask, to=TensorProto.FLOAT))
    return build.node("Mul", mask, build.scalar(float(np.finfo(np.float32).min)))


def _attention(
    build: Builder, x: str, mask: str | None, hidden: int, heads: int, linear: Linear
) -> str:
    """Add attention with several heads: [N, T, hidden] -> [N, T, hidden]."""
    size = hidden // heads
    # Where the batch is not known, exporters write 0, which copies the size.
    batch = build.batch if isinstance(build.batch, int) else 0

    def heads_of(name: str, order: list[int]) -> str:
        y = linear(x, hidden, hidden, name)
        split = build.node("Reshape", y, build.integers(batch, _TOKENS, heads, size))
        return build.node("Transpose", split, perm=order)

    query, value = heads_of("query", [0, 2, 1, 3]), heads_of("value", [0, 2, 1, 3])
    scores = build.node("MatMul", query, heads_of("key", [0, 2, 3, 1]))
    scores = build.node("Div", scores, build.scalar(math.sqrt(size)))
    if mask is not None:
        scores = build.node("Add", scores, mask)
    mixed = build.node("MatMul", build.node("Softmax", scores, axis=-1), value)
    joined = build.node("Reshape", build.node("Transpose", mixed, perm=[0, 2, 1, 3]),
                        build.integers(batch, _TOKENS, hidden))  # fmt: skip
    return linear(joined, hidden, hidden, "output.dense")


def _gelu(build: Builder, x: str) -> str:
    """Add x (1 + erf(x / sqrt 2)) / 2, in five operators."""
    erf = build.node("Erf", build.node("Div", x, build.scalar(math.sqrt(2))))
    product = build.node("Mul", x, build.node("Add", erf, build.scalar(1)))
    return build.node("Mul", product, build.scalar(0.5))


def _layer_norm(build: Builder, x: str, hidden: int) -> str:
    scale = build.normal("LayerNorm.weight", [hidden], 0.1, 1)
    bias = build.normal("LayerNorm.bias", [hidden], 0.1)
    if build.opset >= _FIRST_OPSET_WITH_LAYER_NORM:
        return build.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-12)
    centred = build.node("Sub", x, build.node("ReduceMean", x, axes=[-1], keepdims=1))
    squares = build.node("Pow", centred, build.scalar(2))
    variance = build.node("ReduceMean", squares, axes=[-1], keepdims=1)
    deviation = build.node("Sqrt", build.node("Add", variance, build.scalar(1e-12)))
    scaled = build.node("Mul", build.node("Div", centred, deviation), scale)
    return build.node("Add", scaled, bias)
