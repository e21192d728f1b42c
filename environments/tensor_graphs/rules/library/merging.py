"""Rules that merge products of one tensor with several matrices, and likewise convolutions.

The merged operator computes all results together, and a Split separates them. Other rules do the
reverse: they compute apart what was computed together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from environments.tensor_graphs.rules.language.notation import (
    Tensor,
    make_rule,
    only_where,
    op,
    tensors,
)
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.library.parts import PLAIN, WINDOW


def numbered(letter: str, count: int) -> list[Tensor]:
    """Return variables that are numbered from 1: a1, a2, … for the letter "a"."""
    return tensors(" ".join(f"{letter}{number}" for number in range(1, count + 1)))


def outputs(split: Tensor, count: int) -> tuple[Tensor, ...]:
    """Return all outputs of a Split."""
    return tuple(split.output(number) for number in range(count))


def constant(*weights: Tensor) -> list[object]:
    """Return restrictions to constant weights, whose merging costs nothing when the model runs."""
    return [only_where(weight.is_constant) for weight in weights]


def _together(
    name: str, apart: list[Tensor], whole: Tensor, axis: int, sizes: object, *weights: Tensor
) -> Rule:
    """Make the rule that computes several results as one, and separates them along an axis."""
    together = outputs(op.Split(whole, axis=axis, split=sizes), len(apart))
    return make_rule(name, apart, together, *constant(*weights))


def _products(count: int) -> Iterator[Rule]:
    (x,), w, b = numbered("x", 1), numbered("w", count), numbered("b", count)
    columns = [matrix.dim(-1) for matrix in w]
    products, whole = [x @ matrix for matrix in w], x @ op.Concat(*w, axis=-1)
    yield _together(f"{count}_products_are_one", products, whole, -1, columns, *w)
    layers = [product + bias for product, bias in zip(products, b, strict=True)]
    whole = whole + op.Concat(*b, axis=-1)
    yield _together(f"{count}_linear_layers_are_one", layers, whole, -1, columns, *w, *b)


def _gemms(count: int) -> Iterator[Rule]:
    (x,), w, b = numbered("x", 1), numbered("w", count), numbered("b", count)
    for name, along, transposed in (("", 1, 0), ("_transposed", 0, 1)):
        gemms = [op.Gemm(x, *pair, transB=transposed) for pair in zip(w, b, strict=True)]
        whole = op.Gemm(x, op.Concat(*w, axis=along), op.Concat(*b, axis=-1), transB=transposed)
        columns = [matrix.dim(along) for matrix in w]
        yield _together(f"{count}{name}_gemms_are_one", gemms, whole, 1, columns, *w, *b)


def _convolutions(count: int) -> Iterator[Rule]:
    (x,), w, b = numbered("x", 1), numbered("w", count), numbered("b", count)
    channels = [kernel.dim(0) for kernel in w]
    together = op.Concat(*w, axis=0)
    convs = [op.Conv(x, kernel, **PLAIN) for kernel in w]
    whole = op.Conv(x, together, **PLAIN)
    yield _together(f"{count}_convs_are_one", convs, whole, 1, channels, *w)
    convs = [op.Conv(x, *pair, **PLAIN) for pair in zip(w, b, strict=True)]
    whole = op.Conv(x, together, op.Concat(*b, axis=0), **PLAIN)
    yield _together(f"{count}_convs_with_bias_are_one", convs, whole, 1, channels, *w, *b)


def _apart(count: int) -> Iterator[Rule]:
    """Yield rules that compute with each part of a Concat of weights alone, and the reverse."""
    (x,), w = numbered("x", 1), numbered("w", count)
    yield make_rule(
        f"product_with_{count}_matrices_apart",
        x @ op.Concat(*w, axis=w[0].rank - 1),
        op.Concat(*(x @ matrix for matrix in w), axis=-1),
    )
    yield make_rule(
        f"conv_with_{count}_kernels_apart",
        op.Conv(x, op.Concat(*w, axis=0), **PLAIN),
        op.Concat(*(op.Conv(x, kernel, **PLAIN) for kernel in w), axis=1),
    )
    yield make_rule(
        f"concat_of_{count}_products",
        op.Concat(*(x @ matrix for matrix in w), axis=w[0].rank - 1),
        x @ op.Concat(*w, axis=-1),
        *constant(*w),
    )
    yield make_rule(
        f"concat_of_{count}_convs",
        op.Concat(*(op.Conv(x, kernel, **PLAIN) for kernel in w), axis=1),
        op.Conv(x, op.Concat(*w, axis=0), **PLAIN),
        *constant(*w),
    )


def _groups(count: int) -> Iterator[Rule]:
    """Yield rules that turn convolutions of different images into the groups of one convolution."""
    x, w, b = numbered("x", count), numbered("w", count), numbered("b", count)
    alike = [kernel.dim(0) == w[0].dim(0) for kernel in w[1:]]
    together = op.Concat(*x, axis=1), op.Concat(*w, axis=0)
    bias = op.Concat(*b, axis=0)
    yield make_rule(
        f"{count}_convs_are_groups",
        op.Concat(*(op.Conv(*pair, **PLAIN) for pair in zip(x, w, strict=True)), axis=1),
        op.Conv(*together, group=count, **PLAIN),
        *alike,
        *constant(*w),
    )
    yield make_rule(
        f"{count}_convs_with_bias_are_groups",
        op.Concat(*(op.Conv(*three, **PLAIN) for three in zip(x, w, b, strict=True)), axis=1),
        op.Conv(*together, bias, group=count, **PLAIN),
        *alike,
        *constant(*w, *b),
    )


def _half_the_groups() -> Iterator[Rule]:
    """Yield rules that merge two groups into one, whose kernels are zero for the other group."""
    x, w, b = tensors("x w b")
    group = WINDOW["group"]
    pairs = op.Reshape(w, shape=(group / 2, 2, w.dim(0) / group, w.dim(1), -1))
    first, second = outputs(op.Split(pairs, axis=1, split=(1, 1)), 2)
    wider = op.Concat(
        op.Pad(first, pads=(0, 0, 0, 0, 0, 0, 0, 0, w.dim(1), 0)),
        op.Pad(second, pads=(0, 0, 0, w.dim(1), 0, 0, 0, 0, 0, 0)),
        axis=1,
    )
    kernel = op.Reshape(wider, shape=(w.dim(0), 2 * w.dim(1), w.dim(2), w.dim(3)))
    more: Sequence[tuple[str, tuple[Tensor, ...]]] = (("", ()), ("_with_bias", (b,)))
    for name, bias in more:
        yield make_rule(
            f"half_the_groups{name}",
            op.Conv(x, w, *bias, **WINDOW),
            op.Conv(x, kernel, *bias, group=group / 2, **PLAIN),
            *constant(w, *bias),
        )


_MAKERS: tuple[tuple[Callable[[int], Iterator[Rule]], tuple[int, ...]], ...] = (
    (_products, (2, 3, 4)),
    (_gemms, (2, 3)),
    (_convolutions, (2, 3, 4)),
    (_apart, (2, 3)),
    (_groups, (2,)),
)
RULES = (
    *(rule for make, ways in _MAKERS for count in ways for rule in make(count)),
    *_half_the_groups(),
)
