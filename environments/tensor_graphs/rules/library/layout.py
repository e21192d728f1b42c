"""Rules for operators that only move elements, such as Reshape, Transpose, Concat and Split.

These operators cancel each other, or move past operators that compute.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from collections.abc import Iterator

from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    attributes,
    call,
    concat,
    make_rule,
    no,
    numbers,
    only_where,
    op,
    permute,
    rule,
    rules,
    tensors,
)
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.library.merging import numbered, outputs
from environments.tensor_graphs.rules.library.parts import along_last, fewer_axes, flat

_UNARY = ("Relu", "Sigmoid", "Tanh", "Erf", "Gelu")
_BINARY = ("Add", "Sub", "Mul", "Div")
_WAYS = (2, 3, 4)


@rules
def cancelling(x, p: Attribute, q: Attribute, s: Attribute, t: Attribute):
    """Operators that cancel each other, or do nothing."""
    return {
        "transposed_twice": (
            op.Transpose(op.Transpose(x, perm=p), perm=q),
            op.Transpose(x, perm=permute(p, q)),
        ),
        "transposed_not_at_all": (op.Transpose(x, perm=p), x, p == numbers(0, x.rank)),
        "reshaped_twice": (
            op.Reshape(op.Reshape(x, shape=s), shape=t),
            op.Reshape(x, shape=t),
        ),
        "reshaped_not_at_all": (op.Reshape(x, shape=s), x),
        "expanded_not_at_all": (op.Expand(x, shape=s), x),
        "cast_not_at_all": (op.Cast(x, to=t), x),
        # Turning a row into a column moves no elements, so a Reshape does it too.
        "transposed_sizes_of_one": (
            op.Transpose(x, perm=p),
            op.Reshape(x, shape=permute(x.shape, p)),
            x.rank == 2,
            x.dim(0) == 1,
        ),
    }


def _cancelling(count: int) -> Iterator[Rule]:
    x, (y,) = numbered("x", count), numbered("y", 1)
    (axis,) = attributes("axis").values()
    sizes = [*attributes(" ".join(f"size{number + 1}" for number in range(count))).values()]
    yield make_rule(
        f"concat_of_{count}_split",
        op.Concat(*outputs(op.Split(y, axis=axis, split=sizes), count), axis=axis),
        y,
    )
    together = op.Split(op.Concat(*x, axis=axis), axis=axis, split=sizes)
    for number, tensor in enumerate(x):
        # The output's type gives the last part's size, so no condition is needed for it.
        before = x[:number] if number + 1 < count else []
        yield make_rule(
            f"part_{number + 1}_of_{count}_of_concat",
            together.output(number),
            tensor,
            *[sizes[place] == each.dim(axis) for place, each in enumerate(before)],
        )


@rules
def nested_concats(x, y, z, axis: Attribute):
    """A Concat whose first or last part is one."""
    flat_concat = op.Concat(x, y, z, axis=axis)
    return {
        "concat_in_concat": (op.Concat(op.Concat(x, y, axis=axis), z, axis=axis), flat_concat),
        "concat_in_concat_behind": (
            op.Concat(x, op.Concat(y, z, axis=axis), axis=axis),
            flat_concat,
        ),
    }


# Moving past elementwise operators.


def _unary(name: str) -> Iterator[Rule]:
    x, y = tensors("x y")
    s, p, axis = attributes("s p axis").values()
    f = getattr(op, name)
    text = name.lower()
    moved = (
        ("reshaped", lambda tensor: op.Reshape(tensor, shape=s)),
        ("transposed", lambda tensor: op.Transpose(tensor, perm=p)),
    )
    for how, move in moved:
        yield make_rule(f"{text}_of_{how}", f(move(x)), move(f(x)))
        yield make_rule(f"{how}_{text}", move(f(x)), f(move(x)))
    before, after = f(op.Concat(x, y, axis=axis)), op.Concat(f(x), f(y), axis=axis)
    yield make_rule(f"{text}_of_concat", before, after)
    yield make_rule(f"concat_of_{text}", after, before)


def _binary(name: str) -> Iterator[Rule]:
    x, y, c = tensors("x y c")
    s, p = attributes("s p").values()
    f = getattr(op, name)
    text = name.lower()
    reshaped = op.Reshape(x, shape=s)
    yield make_rule(
        f"{text}_of_two_reshaped",
        f(reshaped, op.Reshape(y, shape=s)),
        op.Reshape(f(x, y), shape=s),
        fewer_axes(x, s),
    )
    yield make_rule(
        f"{text}_of_reshaped",
        f(reshaped, y),
        op.Reshape(f(x, op.Reshape(y, shape=x.shape)), shape=s),
        only_where(no(y.is_constant)),
        fewer_axes(x, s),
    )
    yield make_rule(
        f"{text}_of_reshaped_and_vector",
        f(reshaped, c),
        op.Reshape(f(x, flat(c)), shape=s),
        along_last(c),
        only_where(c.is_constant),
        fewer_axes(x, s),
    )
    before = f(op.Transpose(x, perm=p), op.Transpose(y, perm=p))
    after = op.Transpose(f(x, y), perm=p)
    yield make_rule(f"{text}_of_two_transposed", before, after)
    yield make_rule(f"transposed_{text}", after, before)
    yield make_rule(
        f"{text}_of_transposed",
        f(op.Transpose(x, perm=p), c),
        op.Transpose(f(x, op.Transpose(c, perm=call("inverse", p))), perm=p),
        only_where(c.is_constant),
    )


@rules
def along_the_last_axis(x, g, b, s: Attribute, axis: Attribute, epsilon: Attribute):
    """Normalising the last axis of a tensor is normalising the rows of a matrix."""
    last = call("length", s) - 1
    reshaped, fewer = op.Reshape(x, shape=s), fewer_axes(x, s)
    rows = op.Reshape(x, shape=(-1, x.dim(-1)))

    def normalized(tensor, axis):
        return op.LayerNormalization(tensor, g, b, axis=axis, epsilon=epsilon)

    return {
        "softmax_of_reshaped": (
            op.Softmax(reshaped, axis=axis),
            op.Reshape(op.Softmax(x, axis=-1), shape=s),
            axis == last,
            s[-1] == x.dim(-1),
            fewer,
        ),
        "layer_norm_of_reshaped": (
            normalized(reshaped, last),
            op.Reshape(normalized(x, -1), shape=s),
            s[-1] == x.dim(-1),
            fewer,
        ),
        "layer_norm_of_rows": (
            normalized(x, x.rank - 1),
            op.Reshape(normalized(rows, -1), shape=x.shape),
            only_where(x.rank > 2),
        ),
        "mean_of_reshaped": (
            op.ReduceMean(reshaped, axes=(axis,)),
            op.Reshape(op.ReduceMean(x, axes=(-1,)), shape=concat(s[:-1], (1,))),
            fewer,
        ),
    }


@rule
def product_of_reshaped(x, w: Constant, s: Attribute):
    """A product works along the last axis, too."""
    return (
        op.Reshape(x, shape=s) @ w,
        op.Reshape(x @ w, shape=concat(s[:-1], w.shape[1:])),
        w.rank <= 2,
        fewer_axes(x, s),
    )


RULES = (
    *(rule for count in _WAYS for rule in _cancelling(count)),
    *(rule for name in _UNARY for rule in _unary(name)),
    *(rule for name in _BINARY for rule in _binary(name)),
)
