"""Rules of elementwise arithmetic: they join constants and remove operations without effect."""

# ruff: noqa: D103 (a rule's code says what it does)
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    call,
    no,
    only_where,
    op,
    rule,
)
from environments.tensor_graphs.rules.library.parts import has_fractions, inverse

# Operations that have no effect.


@rule
def plus_zero(x):
    return x + 0.0, x


@rule
def minus_zero(x):
    return x - 0.0, x


@rule
def times_one(x):
    return x * 1.0, x


@rule
def divided_by_one(x):
    return x / 1.0, x


@rule
def to_the_power_of_one(x):
    return x**1.0, x


@rule
def negative_twice(x):
    return op.Neg(op.Neg(x)), x


@rule
def relu_twice(x):
    return op.Relu(op.Relu(x)), op.Relu(x)


@rule
def padded_by_nothing(x, mode: Attribute, pads: Attribute, value: Attribute):
    return op.Pad(x, mode=mode, pads=pads, value=value), x


# Other operators with the same result.


@rule
def square(x):
    return x**2.0, x * x


@rule
def square_root(x):
    return x**0.5, op.Sqrt(x)


@rule
def division_by_constant(x, c: Constant):
    return x / c, x * inverse(c)


@rule
def constant_taken_away(x, c: Constant):
    return x - c, x + -c


@rule
def negative_added(x, y):
    return x + -y, x - y


@rule
def relu_of_clip(x):
    """ReLU6, if it is written as a Relu followed by a Clip."""
    return op.Clip(op.Relu(x), min=0.0, max=6.0), op.Clip(x, min=0.0, max=6.0)


@rule
def maximum_with_zero(x):
    return op.Max(x, 0.0), op.Relu(x)


# Rules that join constants.


@rule
def constants_added(x, a: Constant, b: Constant):
    return (x + a) + b, x + (a + b)


@rule
def constants_multiplied(x, a: Constant, b: Constant):
    return (x * a) * b, x * (a * b)


@rule
def constant_added_last(x, y, c: Constant):
    return (x + c) + y, (x + y) + c, only_where(no(y.is_constant))


@rule
def constant_multiplied_last(x, y, c: Constant):
    return (x * c) * y, (x * y) * c, only_where(no(y.is_constant))


@rule
def scaled_sum_with_constant(x, a: Constant, c: Constant):
    return (x + c) * a, x * a + c * a


@rule
def sum_with_constant_scaled(x, a: Constant, c: Constant):
    return x * a + c * a, (x + c) * a


# Sums and products of tensors.


@rule
def sum_in_another_order(x, y, z):
    return (x + y) + z, x + (y + z), only_where(no(x.is_constant))


@rule
def product_in_another_order(x, y, z):
    return (x * y) * z, x * (y * z), only_where(no(x.is_constant))


@rule
def common_factor(x, y, z):
    return x * z + y * z, (x + y) * z


@rule
def factor_of_each(x, y, z):
    return (x + y) * z, x * z + y * z, only_where(no(z.is_constant))


@rule
def common_divisor(x, y, z):
    return x / z + y / z, (x + y) / z, has_fractions(x)


@rule
def means_of_sum(x, y, axes: Attribute, keep: Attribute):
    return (
        op.ReduceMean(x, axes=axes, keepdims=keep) + op.ReduceMean(y, axes=axes, keepdims=keep),
        op.ReduceMean(x + y, axes=axes, keepdims=keep),
        x.shape == y.shape,
        has_fractions(x),
    )


@rule
def mean_is_global_average(x):
    return op.ReduceMean(x, axes=(2, 3)), op.GlobalAveragePool(x)


@rule
def global_average_is_mean(x):
    return op.GlobalAveragePool(x), op.ReduceMean(x, axes=call("range", 2, x.rank))
