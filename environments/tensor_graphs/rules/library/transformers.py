"""Rules for the parts that transformers repeat in each layer; each changes a part in one step.

Most of these rules follow from smaller ones, but the steps in between gain nothing.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from collections.abc import Callable, Iterator

from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Quantity,
    Tensor,
    attributes,
    call,
    concat,
    make_rule,
    only_where,
    op,
    rules,
    tensors,
)
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.library.parts import ROOT_OF_2, fewer_axes, flat


def gelu(x: Tensor) -> Tensor:
    """Return x (1 + erf(x / √2)) / 2, as PyTorch's exporter writes it."""
    return x * (op.Erf(x / ROOT_OF_2) + 1.0) * 0.5


def layer_norm(
    x: Tensor, g: Tensor, b: Tensor, e: Tensor | Quantity, axis: Quantity | int
) -> Tensor:
    """Return a layer normalisation in nine operators, as PyTorch's exporter does below opset 17."""
    centred = x - op.ReduceMean(x, axes=(axis,))
    variance = op.ReduceMean(centred**2.0, axes=(axis,))
    return centred / op.Sqrt(variance + e) * g + b


@rules
def chains_of_reshaped(x, g, b, e, s: Attribute, axis: Attribute):
    """Chains along the last axis."""
    reshaped = op.Reshape(x, shape=s)
    rows = op.Reshape(x, shape=(-1, x.dim(-1)))
    vectors = flat(g), flat(b), flat(e)
    are_vectors = g.dim(-1) == g.size, b.dim(-1) == b.size, e.size == 1
    return {
        "gelu_chain_of_reshaped": (
            gelu(reshaped),
            op.Reshape(gelu(x), shape=s),
            fewer_axes(x, s),
        ),
        "layer_norm_chain_of_reshaped": (
            layer_norm(reshaped, g, b, e, axis),
            op.Reshape(layer_norm(x, *vectors, -1), shape=s),
            axis == call("length", s) - 1,
            s[-1] == x.dim(-1),
            *are_vectors,
            fewer_axes(x, s),
        ),
        "layer_norm_chain_of_rows": (
            layer_norm(x, g, b, e, axis),
            op.Reshape(layer_norm(rows, *vectors, -1), shape=x.shape),
            axis == x.rank - 1,
            *are_vectors,
            only_where(x.rank > 2),
        ),
    }


# Attention for a batch of one example: three axes are quicker than four with a batch axis.


@rules
def without_batch(x, y, m, a: Attribute, b: Attribute, c: Attribute, s: Attribute, t: Attribute):
    """Parts of attention without the axis of the batch."""
    inner = op.Transpose(op.Reshape(x, shape=x.shape[1:]), perm=(a - 1, b - 1, c - 1))
    return {
        "transposed_without_batch": (
            op.Transpose(x, perm=(0, a, b, c)),
            op.Reshape(inner, shape=(1, x.dim(a), x.dim(b), x.dim(c))),
        ),
        "product_without_batch": (
            op.Reshape(x, shape=s) @ op.Reshape(y, shape=t),
            op.Reshape(x @ y, shape=concat(s[:-1], t[-1:])),
            s == concat((1,), x.shape),
            t == concat((1,), y.shape),
        ),
        "sum_without_batch": (
            op.Reshape(x, shape=s) + m,
            op.Reshape(x + op.Reshape(m, shape=m.shape[1:]), shape=s),
            s == concat((1,), x.shape),
        ),
    }


def _attention(name: str, score: Callable[[Tensor, Tensor, bool], Tensor]) -> Rule:
    q, k, v, m = tensors("q k v m")
    sizes = tuple(attributes("t h d").values())

    def mixed(swap: tuple[int, ...], turned: tuple[int, ...], is_batch: bool) -> Tensor:
        shape = (1, *sizes) if is_batch else sizes
        query, value = (
            op.Transpose(op.Reshape(tensor, shape=shape), perm=swap) for tensor in (q, v)
        )
        key = op.Transpose(op.Reshape(k, shape=shape), perm=turned)
        weights = op.Softmax(score(query @ key, m, is_batch), axis=len(swap) - 1)
        return op.Transpose(weights @ value, perm=swap)

    return make_rule(
        name,
        mixed((0, 2, 1, 3), (0, 2, 3, 1), True),
        op.Reshape(mixed((1, 0, 2), (1, 2, 0), False), shape=(1, *sizes)),
    )


def _masked(scores: Tensor, m: Tensor, is_batch: bool) -> Tensor:
    return scores + (m if is_batch else op.Reshape(m, shape=m.shape[1:]))


def _attentions() -> Iterator[Rule]:
    (scale,) = attributes("scale").values()
    yield _attention("attention", lambda x, m, is_batch: x)
    yield _attention("masked_attention", _masked)
    yield _attention("divided_attention", lambda x, m, is_batch: x / scale)
    yield _attention("scaled_attention", lambda x, m, is_batch: x * scale)
    yield _attention(
        "divided_masked_attention", lambda x, m, is_batch: _masked(x / scale, m, is_batch)
    )
    yield _attention(
        "scaled_masked_attention", lambda x, m, is_batch: _masked(x * scale, m, is_batch)
    )


# Two layers with a function between them, computed in two halves, each of which fits in the cache.


def _halves(name: str, f: Callable[[Tensor], Tensor]) -> Iterator[Rule]:
    x, w, b, v, c = tensors("x w b v c")
    size = w.dim(1)
    half = (size / 2, size / 2)

    def in_halves(rows: Tensor, bias: Tensor, last: Tensor) -> Tensor:
        w_parts, b_parts, v_parts = (
            (split, split.output(1))
            for split in (
                op.Split(w, axis=1, split=half),
                op.Split(bias, axis=0, split=half),
                op.Split(v, axis=0, split=half),
            )
        )
        first = op.Gemm(f(op.Gemm(rows, w_parts[0], b_parts[0])), v_parts[0], last)
        return op.Gemm(f(op.Gemm(rows, w_parts[1], b_parts[1])), v_parts[1], first)

    wanted = [*[only_where(tensor.is_constant) for tensor in (w, b, v)], only_where(size >= 512)]
    yield make_rule(
        f"halves_of_{name}",
        op.Gemm(f(op.Gemm(x, w, b)), v, c),
        in_halves(x, b, c),
        b.rank == 1,
        *wanted,
    )
    rows = op.Reshape(x, shape=(-1, x.dim(-1)))
    yield make_rule(
        f"halves_of_linear_{name}",
        f(x @ w + b) @ v + c,
        op.Reshape(in_halves(rows, flat(b), flat(c)), shape=concat(x.shape[:-1], v.shape[1:])),
        b.dim(-1) == b.size,
        c.dim(-1) == c.size,
        *wanted,
    )


RULES = (
    *_attentions(),
    *_halves("relu", op.Relu),
    *_halves("tanh", op.Tanh),
    *_halves("gelu", op.Gelu),
    *_halves("gelu_chain", gelu),
)
