"""Rules that make operators of onnxruntime's own domain, for `tfrl optimize --contrib` alone.

Other runtimes lack these operators. onnxruntime makes some of them itself where it recognises one
way of writing a computation; these rules recognise what exporters and the other rules write.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Quantity,
    Tensor,
    any_of,
    attributes,
    call,
    concat,
    make_rule,
    numbers,
    only_where,
    op,
    rules,
    tensors,
)
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.library.parts import (
    ROOT_OF_2,
    ROOT_OF_HALF,
    cubes,
    half_products,
)
from environments.tensor_graphs.rules.library.transformers import layer_norm

_STEEPNESS = math.sqrt(2 / math.pi)


# Attention with several heads. What it scales is a scale of the scores.


def _attention(
    name: str, scaled: Callable[[Tensor, Tensor], Tensor], scale: Quantity | float, masked: bool
) -> Rule:
    """Make the rule for one way of scaling; query, key and value are [N, T, heads, size]."""
    q, k, v, m = tensors("q k v m")
    scores = scaled(op.Transpose(q, perm=(0, 2, 1, 3)), op.Transpose(k, perm=(0, 2, 3, 1)))
    n, t, h, s = q.dim(0), q.dim(1), q.dim(2), k.dim(1)
    conditions = [k.dim(0) == n, v.dim(0) == n, k.dim(2) == h, v.dim(2) == h]
    masks = []
    if masked:
        conditions += [m.rank == 4, *(any_of(m.dim(axis) == 1, m.dim(axis) == size)
                                      for axis, size in enumerate((n, h, t, s)))]  # fmt: skip
        masks = [op.Expand(m, shape=(m.dim(0), m.dim(1), t, s))]
        scores = scores + m
    rows = [op.Reshape(x, shape=(n, x.dim(1), h * x.dim(3))) for x in (q, k, v)]
    attention = op.MultiHeadAttention(*rows, *masks, num_heads=h, scale=scale)
    mixed = op.Softmax(scores, axis=3) @ op.Transpose(v, perm=(0, 2, 1, 3))
    return make_rule(
        name,
        op.Transpose(mixed, perm=(0, 2, 1, 3)),
        op.Reshape(attention, shape=(n, t, h, v.dim(3))),
        *conditions,
    )


(_C,) = attributes("c").values()
_WAYS: tuple[tuple[str, Callable[[Tensor, Tensor], Tensor], Quantity | float], ...] = (
    ("unscaled", lambda q, k: q @ k, 1.0),
    ("scaled", lambda q, k: (q @ k) * _C, _C),
    ("divided", lambda q, k: (q @ k) / _C, 1 / _C),
    ("scaled_query", lambda q, k: (q * _C) @ k, _C),
    ("divided_query", lambda q, k: (q / _C) @ k, 1 / _C),
    ("scaled_key", lambda q, k: q @ (k * _C), _C),
    ("divided_key", lambda q, k: q @ (k / _C), 1 / _C),
    ("scaled_both", lambda q, k: (q * _C) @ (k * _C), _C * _C),
    ("divided_both", lambda q, k: (q / _C) @ (k / _C), 1 / (_C * _C)),
)
"""Ways to scale the scores: (name, scores of query and key, scale)."""


def _attentions() -> Iterator[Rule]:
    for name, scaled, scale in _WAYS:
        yield _attention(f"contrib_{name}_attention", scaled, scale, masked=False)
        yield _attention(f"contrib_{name}_masked_attention", scaled, scale, masked=True)


def _whole_attentions() -> Iterator[Rule]:
    """Attention of the same rows with its three products, as PyTorch's exporter writes it."""
    x, m, *weights = tensors("x m w_query w_key w_value")
    biases = tensors("b_query b_key b_value")
    (s,) = attributes("s").values()
    query, key, value = (
        op.Reshape(x @ weight + bias, shape=s) for weight, bias in zip(weights, biases, strict=True)
    )
    w, t = weights[0], x.dim(1)
    usual = [x.rank == 3, w.rank == 2, call("length", s) == 4, s[0] == x.dim(0), s[1] == t]
    usual += [weight.shape == w.shape for weight in weights[1:]]
    usual += [bias.shape == w.shape[1:] for bias in biases]
    fitting = [
        m.rank == 4,
        *(any_of(m.dim(k) == 1, m.dim(k) == size) for k, size in enumerate((s[0], s[2], t, t))),
    ]
    constant = [only_where(tensor.is_constant) for tensor in (*weights, *biases)]
    joined = op.Concat(*weights, axis=1), op.Concat(*biases, axis=0)
    # Verification refuses the last way, whose two quotients round otherwise than one factor.
    for name, scaled, scale in _WAYS[:-1]:
        scores = scaled(
            op.Transpose(query, perm=(0, 2, 1, 3)), op.Transpose(key, perm=(0, 2, 3, 1))
        )
        for is_masked in (False, True):
            weighed = op.Softmax(scores + m if is_masked else scores, axis=3)
            mixed = op.Transpose(
                weighed @ op.Transpose(value, perm=(0, 2, 1, 3)), perm=(0, 2, 1, 3)
            )
            masks = [op.Expand(m, shape=(m.dim(0), m.dim(1), t, t))] * is_masked
            attention = op.Attention(x, *joined, *masks, num_heads=s[2], scale=scale)
            yield make_rule(
                f"contrib_{name}{'_masked' * is_masked}_attention_of_rows",
                mixed,
                op.Reshape(attention, shape=s),
                *usual,
                *fitting * is_masked,
                *constant,
            )


def _packed_heads() -> Iterator[Rule]:
    """Query, key and value that a Gather takes apart after one Transpose."""
    (x,) = tensors("x")
    split = op.Split(x, axis=2, split=(1, 1, 1))
    for place in range(3):
        part = op.Reshape(split.output(place), shape=(x.dim(0), x.dim(1), x.dim(3), x.dim(4)))
        yield make_rule(
            f"contrib_packed_heads_{place}",
            op.Gather(op.Transpose(x, perm=(2, 0, 3, 1, 4)), float(place), axis=0),
            op.Transpose(part, perm=(0, 2, 1, 3)),
            x.dim(2) == 3,
        )


def _projections() -> Iterator[Rule]:
    """Attention of three products of the same rows, or of three parts of one."""
    x, m, *weights = tensors("x m w_query w_key w_value")
    biases = tensors("b_query b_key b_value")
    h, c, s, d = attributes("h c s d").values()
    w, b = weights[0], biases[0]
    pairs = list(zip(weights, biases, strict=True))
    alike = [matrix.shape == w.shape for matrix in weights[1:]]
    alike += [bias.shape == w.shape[1:] for bias in biases]
    joined = op.Concat(*weights, axis=1), op.Concat(*biases, axis=0)
    constant = [only_where(tensor.is_constant) for tensor in (*weights, *biases)]
    rows = op.Reshape(x, shape=concat(s[:-1], x.shape[-1:]))

    def parts(product: Tensor, shape: Quantity | None, axis: int) -> list[Tensor]:
        split = op.Split(product, axis=axis, split=(d, d, d))
        outputs = [split, split.output(1), split.output(2)]
        return outputs if shape is None else [op.Reshape(y, shape=shape) for y in outputs]

    forms: dict[str, tuple[list[Tensor], tuple[Tensor, ...], Any]] = {
        "sums": (
            [x @ matrix + bias for matrix, bias in pairs],
            (x, *joined),
            [x.rank == 3, w.rank == 2, *alike, *constant],
        ),
        "gemms": (
            [op.Reshape(op.Gemm(x, *pair), shape=s) for pair in pairs],
            (rows, *joined),
            [*alike, *constant],
        ),
        "packed_sum": (
            parts(x @ w + b, None, 2),
            (x, w, b),
            [x.rank == 3, w.rank == 2, b.shape == w.shape[1:]],
        ),
        "packed_gemm": (
            parts(op.Gemm(x, w, b), s, 1),
            (rows, w, b),
            [b.shape == w.shape[1:]],
        ),
    }
    for name, (source, target, conditions) in forms.items():
        for mask in ([], [m]):
            yield make_rule(
                f"contrib_attention_of_{name}{'_masked' * len(mask)}",
                op.MultiHeadAttention(*source, *mask, num_heads=h, scale=c),
                op.Attention(*target, *mask, num_heads=h, scale=c),
                *conditions,
            )


# Layer normalisations of a sum.


def _fits(x: Tensor, y: Tensor, *vectors: Tensor) -> list[Any]:
    """Return when SkipLayerNormalization takes x and y, with these vectors for the last axis."""
    shapes = (vector.shape == x.shape[-1:] for vector in vectors)
    return [any_of(x.rank == 2, x.rank == 3), y.shape == x.shape, *shapes]


@rules
def contrib_layer_norms(x, y, g, b, e: Attribute, axis: Attribute):
    """What is added, then normalised; and the sum itself, if it is used too."""
    skip = op.SkipLayerNormalization(x, y, g, b, epsilon=e)
    both = op.SkipLayerNormalizationAndSum(x, y, g, b, epsilon=e)
    is_last = axis == x.rank - 1, *_fits(x, y, g, b)
    return {
        "contrib_layer_norm_of_sum": (
            op.LayerNormalization(x + y, g, b, axis=axis, epsilon=e),
            skip,
            *is_last,
        ),
        "contrib_layer_norm_chain_of_sum": (layer_norm(x + y, g, b, e, axis), skip, *is_last),
        "contrib_sum_beside_its_layer_norm": (
            (skip, x + y),
            (both, both.output(1)),
            *_fits(x, y, g, b),
        ),
    }


# Gelu, as exporters write it.


def _gelus(name: str, bent: Tensor, target: Tensor) -> Iterator[Rule]:
    for place, source in half_products(tensors("x")[0], bent + 1.0).items():
        yield make_rule(f"contrib_{name}_{place}", source, target)


def _all_gelus() -> Iterator[Rule]:
    (x,) = tensors("x")
    yield from _gelus("gelu_by_product", op.Erf(x * ROOT_OF_HALF), op.ErfGelu(x))
    yield from _gelus("gelu_by_quotient", op.Erf(x / ROOT_OF_2), op.ErfGelu(x))
    for name, cube in cubes(x).items():
        slope = x + cube * 0.044715
        ways = {"product": slope * _STEEPNESS, "quotient": slope / (1 / _STEEPNESS)}
        for way, steep in ways.items():
            yield from _gelus(f"fast_gelu_by_{way}_of_{name}", op.Tanh(steep), op.FastGelu(x))


@rules
def contrib_activations(x, b, a: Attribute):
    """Activations that have a name of their own, and biases in front of them."""
    is_bias = b.rank == 1, b.size == x.dim(-1), x.rank >= 1
    return {
        "contrib_gelu": (op.Gelu(x, approximate="none"), op.ErfGelu(x)),
        "contrib_fast_gelu": (op.Gelu(x, approximate="tanh"), op.FastGelu(x)),
        "contrib_bias_gelu": (op.ErfGelu(x + b), op.BiasGelu(x, b), *is_bias),
        "contrib_fast_bias_gelu": (op.FastGelu(x + b), op.FastGelu(x, b), *is_bias),
        "contrib_silu": (x * op.Sigmoid(x), op.QuickGelu(x, alpha=1.0)),
        "contrib_quick_gelu": (x * op.Sigmoid(x * a), op.QuickGelu(x, alpha=a)),
    }


# Products of matrices.


@rules
def contrib_products(x, y, p: Attribute, c: Attribute, i: Attribute, j: Attribute):
    """Products of transposed matrices, and their multiples."""

    def swaps(tensor):
        rank = tensor.rank
        return p == concat(numbers(0, rank - 2), (rank - 1, rank - 2)), rank >= 2

    fused = op.FusedMatMul(x, y, alpha=c, transA=i, transB=j)
    (scale,) = attributes("s").values()
    return {
        "contrib_product_with_transposed": (
            x @ op.Transpose(y, perm=p),
            op.FusedMatMul(x, y, transB=1),
            *swaps(y),
        ),
        "contrib_product_of_transposed": (
            op.Transpose(x, perm=p) @ y,
            op.FusedMatMul(x, y, transA=1),
            *swaps(x),
        ),
        "contrib_multiple_of_product": (
            (x @ y) * scale,
            op.FusedMatMul(x, y, alpha=scale),
        ),
        "contrib_quotient_of_product": (
            (x @ y) / scale,
            op.FusedMatMul(x, y, alpha=1 / scale),
        ),
        "contrib_multiple_of_fused_product": (
            fused * scale,
            op.FusedMatMul(x, y, alpha=c * scale, transA=i, transB=j),
        ),
        "contrib_quotient_of_fused_product": (
            fused / scale,
            op.FusedMatMul(x, y, alpha=c / scale, transA=i, transB=j),
        ),
        "contrib_fused_product_with_transposed": (
            op.FusedMatMul(x, op.Transpose(y, perm=p), alpha=c, transA=i, transB=0),
            op.FusedMatMul(x, y, alpha=c, transA=i, transB=1),
            *swaps(y),
        ),
        "contrib_fused_product_of_transposed": (
            op.FusedMatMul(op.Transpose(x, perm=p), y, alpha=c, transA=0, transB=j),
            op.FusedMatMul(x, y, alpha=c, transA=1, transB=j),
            *swaps(x),
        ),
    }


RULES = (*_whole_attentions(), *_attentions(), *_projections(), *_packed_heads(), *_all_gelus())
