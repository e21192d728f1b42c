"""Proposals for operators of onnxruntime's own domain; see `proposals`."""

from __future__ import annotations

from environments.tensor_graphs.rules.verification.draws import ImpossibleError, Use


def attention(use: Use) -> None:
    """Propose query, key and value with several heads, and a mask."""
    draw = use.draw
    heads = draw.rng.choice((1, 2, 3))
    inner = heads * draw.size()
    query = use.propose(0, (draw.size(), draw.size(), inner))
    if len(query) != 3:
        raise ImpossibleError
    key = use.propose(1, (query[0], draw.size(), query[2]))
    if len(key) != 3:
        raise ImpossibleError
    value = use.propose(2, (*key[:2], query[2]))
    fitting = [n for n in (1, 2, 3, 4) if not query[2] % n and not value[-1] % n]
    chosen = use.choose("num_heads", lambda: draw.rng.choice(fitting))
    rows, columns = query[1], key[1]
    mask = (draw.rng.choice((1, query[0])), draw.rng.choice((1, chosen)), rows, columns)
    use.propose(3, mask)
    use.choose("scale", lambda: draw.number() or 1.0)


def projected_attention(use: Use) -> None:
    """Propose rows, the matrix of query, key and value, its bias, and a mask."""
    draw = use.draw
    heads = use.choose("num_heads", lambda: draw.rng.choice((1, 2, 3)))
    x = use.of_rank(0, 3)
    if len(x) != 3:
        raise ImpossibleError
    weight = use.propose(1, (x[2], 3 * heads * draw.size()))
    use.propose(2, weight[-1:])
    use.propose(3, (draw.rng.choice((1, x[0])), draw.rng.choice((1, heads)), x[1], x[1]))
    use.choose("scale", lambda: draw.number() or 1.0)


def layer_norm_of_sum(use: Use) -> None:
    """Propose two tensors of one shape, and vectors for the last axis."""
    whole = next((shape for shape in use.shapes[:2] if shape is not None), None)
    shape = whole or use.draw.shape(use.draw.rng.choice((2, 3)))
    for place in range(len(use.shapes)):
        use.propose(place, shape if place < 2 else shape[-1:])


def biased(use: Use) -> None:
    """Propose a tensor, and a vector for its last axis."""
    use.propose(1, use.of_rank(0)[-1:])


def fused_product(use: Use) -> None:
    """Propose stacks of matrices, either of them turned or not."""
    draw = use.draw
    turned = [use.choose(name, lambda: int(draw.chance(0.4))) for name in ("transA", "transB")]
    stack = draw.shape(draw.rng.choice((1, 2))) if draw.chance(0.4) else ()
    left = (*stack, draw.size(), draw.size())
    left = use.propose(0, left)
    if len(left) < 2:
        raise ImpossibleError
    inner, columns = left[-2 if turned[0] else -1], draw.size()
    right = (columns, inner) if turned[1] else (inner, columns)
    use.propose(1, (*left[:-2], *right))
