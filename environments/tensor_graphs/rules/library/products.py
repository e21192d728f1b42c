"""Rules for products of matrices: their order, their ranks, and the reshapes around them."""

# ruff: noqa: D103 (a rule's code says what it does)
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False

from __future__ import annotations

from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    ConstantScalar,
    concat,
    only_where,
    op,
    rule,
)
from environments.tensor_graphs.rules.library.parts import column, flat, inverse

# Products of products, and sums of products.


@rule
def constant_matrices_first(x, a: Constant, b: Constant):
    return (x @ a) @ b, x @ (a @ b), x.rank > 1, a.rank > 1, b.rank > 1


@rule
def left_product_first(x, y, z):
    return x @ (y @ z), (x @ y) @ z, x.rank > 1, y.rank > 1, z.rank > 1


@rule
def right_product_first(x, y, z):
    return (x @ y) @ z, x @ (y @ z), x.rank > 1, y.rank > 1, z.rank > 1


@rule
def sum_of_products_with_one_left(x, a, b):
    return x @ a + x @ b, x @ (a + b), a.shape == b.shape


@rule
def sum_of_products_with_one_right(x, y, a):
    return x @ a + y @ a, (x + y) @ a, x.shape == y.shape


@rule
def sum_of_products(x, y, a, b):
    """A sum of two products, as in recurrent cells, is one product of twice the inner size."""
    return (
        x @ a + y @ b,
        op.Concat(x, y, axis=-1) @ op.Concat(a, b, axis=-2),
    )


# Adapters of low rank (LoRA): x·W + (x·A)·B·s.


@rule
def adapter(x, w: Constant, a: Constant, b: Constant):
    return x @ w + (x @ a) @ b, x @ (w + a @ b), a.rank == 2, b.rank == 2, w.rank == 2


@rule
def scaled_adapter(x, w: Constant, a: Constant, b: Constant, s: ConstantScalar):
    return (
        x @ w + ((x @ a) @ b) * s,
        x @ (w + (a @ b) * s),
        a.rank == 2,
        b.rank == 2,
        w.rank == 2,
    )


@rule
def adapter_of_linear(x, w: Constant, c: Constant, a: Constant, b: Constant):
    return (x @ w + c) + (x @ a) @ b, x @ (w + a @ b) + c, a.rank == 2, b.rank == 2, w.rank == 2


@rule
def scaled_adapter_of_linear(
    x, w: Constant, c: Constant, a: Constant, b: Constant, s: ConstantScalar
):
    return (
        (x @ w + c) + ((x @ a) @ b) * s,
        x @ (w + (a @ b) * s) + c,
        a.rank == 2,
        b.rank == 2,
        w.rank == 2,
    )


# Matrices with a bias.


@rule
def linear_is_gemm(x, w, c):
    return x @ w + c, op.Gemm(x, w, c)


@rule
def gemm_is_linear(x, w, c):
    return op.Gemm(x, w, c), x @ w + c


@rule
def matmul_is_gemm(x, w):
    return x @ w, op.Gemm(x, w)


@rule
def gemm_is_matmul(x, w):
    return op.Gemm(x, w), x @ w


@rule
def linear_is_gemm_of_rows(x, w, c):
    """The left operand may have any number of axes; the product takes all but the last as rows."""
    rows = op.Reshape(x, shape=(-1, x.dim(-1)))
    return (
        x @ w + c,
        op.Reshape(op.Gemm(rows, w, flat(c)), shape=concat(x.shape[:-1], w.shape[1:])),
        c.dim(-1) == c.size,
        only_where(x.rank > 2),
    )


@rule
def matmul_of_rows(x, w):
    rows = op.Reshape(x, shape=(-1, x.dim(-1)))
    return (
        x @ w,
        op.Reshape(rows @ w, shape=concat(x.shape[:-1], w.shape[1:])),
        only_where(x.rank > 2),
    )


@rule
def gemm_of_transposed(x, w, c):
    return op.Gemm(x, op.Transpose(w, perm=(1, 0)), c), op.Gemm(x, w, c, transB=1)


@rule
def matmul_of_transposed(x, w):
    return x @ op.Transpose(w, perm=(1, 0)), op.Gemm(x, w, transB=1)


@rule
def transposed_matmul(x, y):
    return (
        op.Transpose(x @ y, perm=(1, 0)),
        op.Transpose(y, perm=(1, 0)) @ op.Transpose(x, perm=(1, 0)),
    )


@rule
def product_of_transposed(x, y):
    return (
        op.Transpose(x, perm=(1, 0)) @ op.Transpose(y, perm=(1, 0)),
        op.Transpose(y @ x, perm=(1, 0)),
    )


# Rules that move the scale s of attention, softmax(q·kᵀ·s), into the weight that computes q.


@rule
def scale_of_query(
    x, w: Constant, b: Constant, k, s: ConstantScalar, shape: Attribute, perm: Attribute
):
    def query(weight, bias):
        return op.Transpose(op.Reshape(x @ weight + bias, shape=shape), perm=perm)

    return (query(w, b) @ k) * s, query(w * flat(s), b * flat(s)) @ k


@rule
def divisor_of_query(
    x, w: Constant, b: Constant, k, s: ConstantScalar, shape: Attribute, perm: Attribute
):
    def query(weight, bias):
        return op.Transpose(op.Reshape(x @ weight + bias, shape=shape), perm=perm)

    return (query(w, b) @ k) / s, query(w * flat(inverse(s)), b * flat(inverse(s))) @ k


@rule
def scale_of_query_gemm(
    x, w: Constant, b: Constant, k, s: ConstantScalar, to: Attribute, perm: Attribute
):
    def query(weight, bias):
        return op.Transpose(op.Reshape(op.Gemm(x, weight, bias), shape=to), perm=perm)

    return (query(w, b) @ k) * s, query(w * column(s), b * flat(s)) @ k


@rule
def divisor_of_query_gemm(
    x, w: Constant, b: Constant, k, s: ConstantScalar, to: Attribute, perm: Attribute
):
    def query(weight, bias):
        return op.Transpose(op.Reshape(op.Gemm(x, weight, bias), shape=to), perm=perm)

    return (query(w, b) @ k) / s, query(w * column(inverse(s)), b * flat(inverse(s))) @ k


@rule
def scale_of_left_factor(x, y, s: ConstantScalar):
    return (x @ y) * s, (x * s) @ y


@rule
def scale_of_right_factor(x, y, s: ConstantScalar):
    return (x @ y) * s, x @ (y * s)


@rule
def scale_of_product(x, y, s: ConstantScalar):
    return (x * s) @ y, (x @ y) * s
