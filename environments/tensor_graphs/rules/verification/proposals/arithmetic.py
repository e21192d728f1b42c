"""Proposals for elementwise operators and products of matrices."""

from __future__ import annotations

from environments.tensor_graphs.rules.verification.draws import Draw, Shape, Use


def elementwise(use: Use) -> None:
    """Propose shapes for any number of inputs that are broadcast."""
    shapes = [shape for shape in use.shapes if shape is not None]
    base = max(shapes, key=len) if shapes else use.draw.shape()
    whole = use.draw.rng.randrange(len(use.shapes)) if not shapes else -1
    for place, shape in enumerate(use.shapes):
        if shape is None and use.is_given[place]:
            use.shapes[place] = base if place == whole else use.draw.partner(base)


def unary(use: Use) -> None:
    """Propose any shape for the one input."""
    use.propose(0, use.draw.shape())


def clip(use: Use) -> None:
    """Propose any shape and any bounds for Clip."""
    use.propose(0, use.draw.shape())
    low, high = sorted((use.draw.number(), use.draw.number()))
    use.choose("min", lambda: low)
    use.choose("max", lambda: high)


def cast(use: Use) -> None:
    """Propose any shape and one of a few types for Cast."""
    use.propose(0, use.draw.shape())
    types = ("float32", "float64", "int64", "bool")
    use.choose("to", lambda: use.draw.rng.choice(types))


def matmul(use: Use) -> None:
    """Propose matrices, stacks of them, and vectors, which are legal and easily forgotten."""
    draw = use.draw
    left, right = use.shapes
    if left is None and right is None:
        left = draw.shape(1) if draw.chance(draw.vectors) else draw.shape(least=2)
    if left is not None and right is None:
        inner = left[-1] if left else 1
        if draw.chance(draw.vectors):
            right = (inner,)
        else:
            right = (*_stack(draw, left[:-2]), inner, draw.size())
    elif right is not None and left is None:
        inner = right[-2] if len(right) > 1 else sum(right)
        if draw.chance(draw.vectors):
            left = (inner,)
        else:
            left = (*_stack(draw, right[:-2]), draw.size(), inner)
    use.shapes[:] = [left, right]


def _stack(draw: Draw, partner: Shape) -> Shape:
    """Draw the axes in front of a matrix; `partner` are those of the other operand."""
    kind = draw.rng.random()
    if kind < draw.stacks:
        return draw.shape(draw.rng.choice((1, 2)))
    return draw.partner(partner) if kind < 0.7 else ()


def gemm(use: Use) -> None:
    """Propose two matrices, and a third input that can be added to their product."""
    draw = use.draw
    trans_a = use.choose("transA", lambda: int(draw.chance(0.3)))
    trans_b = use.choose("transB", lambda: int(draw.chance(0.4)))
    for name in ("alpha", "beta"):
        use.choose(name, lambda: 1.0 if draw.chance(0.5) else draw.number())
    rows, inner, columns = draw.size(), draw.size(), draw.size()
    left, right = use.shapes[:2]
    if left is not None and len(left) == 2:
        rows, inner = reversed(left) if trans_a else left
    if right is not None and len(right) == 2:
        inner, columns = reversed(right) if trans_b else right
    use.propose(0, (inner, rows) if trans_a else (rows, inner))
    use.propose(1, (columns, inner) if trans_b else (inner, columns))
    use.propose(2, draw.rng.choice([(columns,), (1, columns), (rows, columns), (rows, 1), ()]))
