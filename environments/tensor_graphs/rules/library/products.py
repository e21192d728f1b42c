"""Rules for products of matrices: their order, their ranks, and the reshapes around them."""

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
    rules,
)
from environments.tensor_graphs.rules.library.parts import column, flat


@rule
def constant_matrices_first(x, a: Constant, b: Constant):
    """The product of constants costs nothing when the model runs."""
    return (x @ a) @ b, x @ (a @ b), x.rank > 1, a.rank > 1, b.rank > 1


@rules
def sums_of_products(x, y, z, a, b):
    """Products in another order, and sums of products."""
    ranks = (x.rank > 1, y.rank > 1, z.rank > 1)
    return {
        "left_product_first": (x @ (y @ z), (x @ y) @ z, *ranks),
        "right_product_first": ((x @ y) @ z, x @ (y @ z), *ranks),
        "sum_of_products_with_one_left": (x @ a + x @ b, x @ (a + b), a.shape == b.shape),
        "sum_of_products_with_one_right": (x @ a + y @ a, (x + y) @ a, x.shape == y.shape),
        # A sum of two products, as in recurrent cells, is one product of twice the inner size.
        "sum_of_products": (
            x @ a + y @ b,
            op.Concat(x, y, axis=-1) @ op.Concat(a, b, axis=-2),
        ),
    }


@rules
def adapters(x, w: Constant, c: Constant, a: Constant, b: Constant, s: ConstantScalar):
    """Adapters of low rank (LoRA): x·W + (x·A)·B·s."""
    ranks = (a.rank == 2, b.rank == 2, w.rank == 2)
    scaled = ((x @ a) @ b) * s
    return {
        "adapter": (x @ w + (x @ a) @ b, x @ (w + a @ b), *ranks),
        "scaled_adapter": (x @ w + scaled, x @ (w + (a @ b) * s), *ranks),
        "adapter_of_linear": ((x @ w + c) + (x @ a) @ b, x @ (w + a @ b) + c, *ranks),
        "scaled_adapter_of_linear": ((x @ w + c) + scaled, x @ (w + (a @ b) * s) + c, *ranks),
    }


@rules
def matrices_with_bias(x, w, c):
    """The left operand may have any number of axes; a product takes all but the last as rows."""
    rows, shape = op.Reshape(x, shape=(-1, x.dim(-1))), concat(x.shape[:-1], w.shape[1:])
    return {
        "linear_is_gemm": (x @ w + c, op.Gemm(x, w, c)),
        "gemm_is_linear": (op.Gemm(x, w, c), x @ w + c),
        "matmul_is_gemm": (x @ w, op.Gemm(x, w)),
        "gemm_is_matmul": (op.Gemm(x, w), x @ w),
        "linear_is_gemm_of_rows": (
            x @ w + c,
            op.Reshape(op.Gemm(rows, w, flat(c)), shape=shape),
            c.dim(-1) == c.size,
            only_where(x.rank > 2),
        ),
        "matmul_of_rows": (x @ w, op.Reshape(rows @ w, shape=shape), only_where(x.rank > 2)),
    }


@rules
def transposed_matrices(x, y, w, c):
    """Matrices that are transposed before or after they are multiplied."""

    def turned(tensor):
        return op.Transpose(tensor, perm=(1, 0))

    return {
        "gemm_of_transposed": (op.Gemm(x, turned(w), c), op.Gemm(x, w, c, transB=1)),
        "matmul_of_transposed": (x @ turned(w), op.Gemm(x, w, transB=1)),
        "transposed_matmul": (turned(x @ y), turned(y) @ turned(x)),
        "product_of_transposed": (turned(x) @ turned(y), turned(y @ x)),
    }


@rules
def scale_of_attention(
    x,
    w: Constant,
    b: Constant,
    k,
    s: ConstantScalar,
    shape: Attribute,
    to: Attribute,
    perm: Attribute,
):
    """Move the scale s of attention, softmax(q·kᵀ·s), into the weight that computes q."""
    t = op.Reciprocal(s)

    def linear(w, b):
        return op.Transpose(op.Reshape(x @ w + b, shape=shape), perm=perm)

    def gemm(w, b):
        return op.Transpose(op.Reshape(op.Gemm(x, w, b), shape=to), perm=perm)

    return {
        "scale_of_query": ((linear(w, b) @ k) * s, linear(w * flat(s), b * flat(s)) @ k),
        "divisor_of_query": ((linear(w, b) @ k) / s, linear(w * flat(t), b * flat(t)) @ k),
        "scale_of_query_gemm": ((gemm(w, b) @ k) * s, gemm(w * column(s), b * flat(s)) @ k),
        "divisor_of_query_gemm": ((gemm(w, b) @ k) / s, gemm(w * column(t), b * flat(t)) @ k),
    }


@rules
def scale_of_a_product(x, y, s: ConstantScalar):
    """A factor of a product is a factor of either operand."""
    return {
        "scale_of_left_factor": ((x @ y) * s, (x * s) @ y),
        "scale_of_right_factor": ((x @ y) * s, x @ (y * s)),
        "scale_of_product": ((x * s) @ y, (x @ y) * s),
    }
