"""Rules of elementwise arithmetic: they join constants and remove operations without effect."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    call,
    no,
    only_where,
    op,
    repeat,
    rules,
)
from environments.tensor_graphs.rules.library.parts import has_fractions


@rules
def without_effect(x, mode: Attribute, pads: Attribute, value: Attribute):
    """Operations that have no effect."""
    return {
        "plus_zero": (x + 0.0, x),
        "minus_zero": (x - 0.0, x),
        "times_one": (x * 1.0, x),
        "divided_by_one": (x / 1.0, x),
        "to_the_power_of_one": (x**1.0, x),
        "negative_twice": (op.Neg(op.Neg(x)), x),
        "relu_twice": (op.Relu(op.Relu(x)), op.Relu(x)),
        "padded_by_nothing": (op.Pad(x, mode=mode, pads=pads, value=value), x),
    }


@rules
def other_operators(x, y, c: Constant):
    """Other operators with the same result; integers have no reciprocal."""
    return {
        "square": (x**2.0, x * x),
        "square_root": (x**0.5, op.Sqrt(x)),
        "division_by_constant": (x / c, x * op.Reciprocal(c)),
        "constant_taken_away": (x - c, x + -c),
        "negative_added": (x + -y, x - y),
        # ReLU6, if it is written as a Relu followed by a Clip.
        "relu_of_clip": (op.Clip(op.Relu(x), min=0.0, max=6.0), op.Clip(x, min=0.0, max=6.0)),
        "maximum_with_zero": (op.Max(x, 0.0), op.Relu(x)),
    }


@rules
def joined_constants(x, y, a: Constant, b: Constant, c: Constant):
    """Rules that join constants."""
    return {
        "constants_added": ((x + a) + b, x + (a + b)),
        "constants_multiplied": ((x * a) * b, x * (a * b)),
        "constant_added_last": ((x + c) + y, (x + y) + c, only_where(no(y.is_constant))),
        "constant_multiplied_last": ((x * c) * y, (x * y) * c, only_where(no(y.is_constant))),
        "scaled_sum_with_constant": ((x + c) * a, x * a + c * a),
        "sum_with_constant_scaled": (x * a + c * a, (x + c) * a),
    }


@rules
def numbers_with_all_axes(x, c: Constant):
    """A number beside a tensor whose last axis has the size 1.

    onnxruntime then goes through the tensor element by element, unless the number has as many axes
    (`search.fused_formula`), which is 40 times as fast.
    """
    full = op.Reshape(c, shape=repeat(1, x.rank))
    where = [*map(only_where, (c.size == 1, c.rank < x.rank, x.dim(-1) == 1))]
    return {
        "number_with_all_axes_added": (x + c, x + full, *where),
        "number_with_all_axes_multiplied": (x * c, x * full, *where),
        "taken_from_number_with_all_axes": (c - x, full - x, *where),
        "number_with_all_axes_divided": (c / x, full / x, *where),
        "to_the_power_of_number_with_all_axes": (x**c, x**full, *where),
    }


@rules
def sums_and_products(x, y, z, axes: Attribute, keep: Attribute):
    """Sums and products of tensors."""
    mean = {"axes": axes, "keepdims": keep}
    return {
        "sum_in_another_order": ((x + y) + z, x + (y + z), only_where(no(x.is_constant))),
        "product_in_another_order": ((x * y) * z, x * (y * z), only_where(no(x.is_constant))),
        "common_factor": (x * z + y * z, (x + y) * z),
        "factor_of_each": ((x + y) * z, x * z + y * z, only_where(no(z.is_constant))),
        "common_divisor": (x / z + y / z, (x + y) / z, has_fractions(x)),
        "means_of_sum": (
            op.ReduceMean(x, **mean) + op.ReduceMean(y, **mean),
            op.ReduceMean(x + y, **mean),
            x.shape == y.shape,
            has_fractions(x),
        ),
        "mean_is_global_average": (op.ReduceMean(x, axes=(2, 3)), op.GlobalAveragePool(x)),
        "global_average_is_mean": (
            op.GlobalAveragePool(x),
            op.ReduceMean(x, axes=call("range", 2, x.rank)),
        ),
    }
