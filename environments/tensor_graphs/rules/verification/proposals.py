"""Proposals, which draw the shapes and attributes of each kind of operator.

A proposal fills in the shapes and attributes of one use of an operator that are not known yet. Its
choices mostly fit together, but need not: `table.infer` checks them later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from environments.tensor_graphs.rules.verification import layout_proposals as layout
from environments.tensor_graphs.rules.verification.draws import Draw, Shape, Use, any_axis, check

_EPSILONS = (2.0**-17, 2.0**-10, 0.125, 2.0**-20)


def propose(use: Use) -> None:
    """Draw the shapes and attributes of one use of an operator that are not known yet.

    Raises:
      ImpossibleError: the known shapes and attributes leave no choice.
    """
    usual = _unary if len(use.shapes) == 1 else _elementwise
    _PROPOSALS.get(use.op, usual)(use)


def _elementwise(use: Use) -> None:
    """Propose shapes for any number of inputs that are broadcast."""
    shapes = [shape for shape in use.shapes if shape is not None]
    base = max(shapes, key=len) if shapes else use.draw.shape()
    whole = use.draw.rng.randrange(len(use.shapes)) if not shapes else -1
    for place, shape in enumerate(use.shapes):
        if shape is None and use.is_given[place]:
            use.shapes[place] = base if place == whole else use.draw.partner(base)


def _unary(use: Use) -> None:
    """Propose any shape for the one input, and what Clip and Cast need."""
    use.propose(0, use.draw.shape())
    if use.op == "Clip":
        low, high = sorted((use.draw.number(), use.draw.number()))
        use.choose("min", lambda: low)
        use.choose("max", lambda: high)
    elif use.op == "Cast":
        types = ("float32", "float64", "int64", "bool")
        use.choose("to", lambda: use.draw.rng.choice(types))


def _matmul(use: Use) -> None:
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


def _gemm(use: Use) -> None:
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


def _reduce(use: Use) -> None:
    rng = use.draw.rng
    data = use.of_rank(0)
    check(len(data) > 0)
    count = use.lengths.get("axes", rng.randint(1, len(data)))
    check(count <= len(data))
    use.choose("axes", lambda: tuple(sorted(rng.sample(range(len(data)), count))))
    use.choose("keepdims", lambda: int(use.draw.chance(0.5)))


def _with_axis(use: Use) -> None:
    """Propose an axis for operators with one axis, such as Softmax and ArgMax."""
    data = use.of_rank(0)
    use.choose("axis", lambda: any_axis(use.draw, len(data)))
    use.choose("keepdims", lambda: int(use.draw.chance(0.5)))


def _normalised_channels(use: Use) -> None:
    draw = use.draw
    data = use.shapes[0]
    if data is None:
        vector = next((shape for shape in use.shapes[1:] if shape is not None), None)
        channels = vector[0] if vector else draw.size()
        data = (draw.size(), channels, *draw.shape(draw.rng.choice((0, 1, 2, 2, 2))))
    data = use.propose(0, data)
    for place in range(1, len(use.shapes)):
        use.propose(place, data[1:2])
    use.choose("epsilon", lambda: draw.rng.choice(_EPSILONS))


def _layer_normalization(use: Use) -> None:
    """Propose an axis for LayerNormalization, mostly the last one, and fitting shapes."""
    draw = use.draw
    data = use.of_rank(0, least=1)
    last = len(data) - 1
    axis = use.choose("axis", lambda: last if draw.chance(0.7) else any_axis(draw, len(data)))
    use.choose("epsilon", lambda: draw.rng.choice(_EPSILONS))
    for place in range(1, len(use.shapes)):
        use.propose(place, data[axis:])


def _conv(use: Use) -> None:
    """Propose a weight and an image that fit each other, groups, and a window."""
    draw, rng = use.draw, use.draw.rng
    data, weight = use.shapes[:2]
    spatial = _spatial(use, ())
    kernel = tuple(weight[2:]) if weight is not None else use.attributes.get("kernel_shape")
    if kernel is None:
        kernel = draw.like_before(
            ("kernel", spatial),
            lambda: (
                (1,) * spatial
                if draw.chance(0.3)
                else tuple(rng.choice((1, 2, 3, 3)) for _ in range(spatial))
            ),
        )
    least = _window(use, spatial, kernel)
    if data is not None and weight is not None:
        groups = data[1] // weight[1] if len(data) > 1 and len(weight) > 1 else 1
    elif data is not None and len(data) > 1:
        groups = rng.choice([1, *(k for k in range(1, data[1] + 1) if data[1] % k == 0)])
    else:
        groups = rng.choice((1, 1, 2, 3))
    groups = use.choose("group", lambda: groups, alike=False)
    per_group = draw.size()
    if data is not None and len(data) > 1:
        per_group = max(1, data[1] // max(1, groups))
    elif weight is not None and len(weight) > 1:
        per_group = weight[1]
    channels = draw.size() * groups
    weight = use.propose(1, (channels, per_group, *kernel))
    batch, sizes = draw.like_before(("image", spatial), lambda: _image(draw, least))
    use.propose(0, (batch, per_group * groups, *map(max, sizes, least)))
    use.propose(2, weight[:1])


def _conv_transpose(use: Use) -> None:
    """Propose the same as for a convolution, with the weight's two axes of channels exchanged."""
    draw, rng = use.draw, use.draw.rng
    spatial = _spatial(use, ())
    kernel = tuple(rng.choice((1, 2, 3)) for _ in range(spatial))
    _window(use, spatial, kernel)
    groups = use.choose("group", lambda: rng.choice((1, 1, 2)), alike=False)
    use.choose("output_padding", lambda: (0,) * spatial)
    data = use.propose(0, (draw.size(), draw.size() * groups, *draw.shape(spatial)))
    weight = use.propose(1, (data[1], draw.size(), *kernel))
    use.propose(2, (weight[1] * groups,))


def _pool(use: Use) -> None:
    """Propose a window and an image that it fits into."""
    draw, rng = use.draw, use.draw.rng
    spatial = _spatial(use, None)
    kernel = use.choose(
        "kernel_shape", lambda: tuple(rng.choice((1, 2, 3)) for _ in range(spatial))
    )
    check(len(kernel) == spatial)
    least = _window(use, spatial, kernel)
    use.choose("ceil_mode", lambda: int(draw.chance(0.2)))
    use.choose("count_include_pad", lambda: int(draw.chance(0.5)))
    batch, sizes = draw.like_before(("image", spatial), lambda: _image(draw, least))
    use.propose(0, (batch, draw.size(), *map(max, sizes, least)))


def _global_pool(use: Use) -> None:
    use.of_rank(0, use.draw.rng.choice((3, 4, 4, 5)))


def _spatial(use: Use, kernel: Sequence[int] | None) -> int:
    """Return the number of spatial axes: a known one, or one drawn at random.

    With a kernel of (), the weight's shape may tell the number, too; with None, only the image's.
    """
    for shape in use.shapes[:1] if kernel is None else (use.shapes[0], use.shapes[1]):
        if shape is not None:
            return len(shape) - 2
    for name, per_dimension in (("strides", 1), ("kernel_shape", 1), ("dilations", 1), ("pads", 2)):
        if name in use.attributes:
            return len(use.attributes[name]) // per_dimension
        if name in use.lengths:
            return use.lengths[name] // per_dimension
    return int(use.draw.like_before("spatial", lambda: use.draw.rng.choice((1, 2, 2, 2, 2, 3))))


def _window(use: Use, spatial: int, kernel: Sequence[int]) -> Shape:
    """Choose strides, dilations and pads; return the smallest sizes of an image that they allow."""
    draw, rng = use.draw, use.draw.rng
    check(spatial >= 1)
    strides = [1] * spatial if draw.chance(0.6) else [rng.choice((1, 2, 3)) for _ in kernel]
    use.choose("strides", lambda: tuple(strides))
    dilations = [1] * spatial if draw.chance(0.7) else [rng.choice((1, 2)) for _ in kernel]
    dilations = use.choose("dilations", lambda: tuple(dilations))
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=False)]
    pads = rng.choice(
        [
            (0,) * (2 * spatial),
            tuple(size // 2 for size in reach) * 2,
            tuple(rng.randint(0, max(0, size - 1)) for size in (*reach, *reach)),
        ]
    )
    pads = use.choose("pads", lambda: pads, alike=draw.chance(0.5))
    check(len(pads) == 2 * spatial and len(reach) == spatial)
    return tuple(max(1, reach[k] - pads[k] - pads[k + spatial]) for k in range(spatial))


def _image(draw: Draw, least: Sequence[int]) -> tuple[int, Shape]:
    """Draw the number of images and their sizes, which are at least `least`."""
    return draw.size(), tuple(size + draw.rng.choice((0, 0, 1, 2, 3)) for size in least)


# Operators of onnxruntime's own domain.


def _attention(use: Use) -> None:
    """Propose query, key and value with several heads, and a mask."""
    draw = use.draw
    heads = draw.rng.choice((1, 2, 3))
    inner = heads * draw.size()
    query = use.propose(0, (draw.size(), draw.size(), inner))
    check(len(query) == 3)
    key = use.propose(1, (query[0], draw.size(), query[2]))
    check(len(key) == 3)
    value = use.propose(2, (*key[:2], query[2]))
    fitting = [n for n in (1, 2, 3, 4) if not query[2] % n and not value[-1] % n]
    chosen = use.choose("num_heads", lambda: draw.rng.choice(fitting))
    rows, columns = query[1], key[1]
    mask = (draw.rng.choice((1, query[0])), draw.rng.choice((1, chosen)), rows, columns)
    use.propose(3, mask)
    use.choose("scale", lambda: draw.number() or 1.0)


def _projected_attention(use: Use) -> None:
    """Propose rows, the matrix of query, key and value, its bias, and a mask."""
    draw = use.draw
    heads = use.choose("num_heads", lambda: draw.rng.choice((1, 2, 3)))
    x = use.of_rank(0, 3)
    check(len(x) == 3)
    weight = use.propose(1, (x[2], 3 * heads * draw.size()))
    use.propose(2, weight[-1:])
    use.propose(3, (draw.rng.choice((1, x[0])), draw.rng.choice((1, heads)), x[1], x[1]))
    use.choose("scale", lambda: draw.number() or 1.0)


def _layer_norm_of_sum(use: Use) -> None:
    whole = next((shape for shape in use.shapes[:2] if shape is not None), None)
    shape = whole or use.draw.shape(use.draw.rng.choice((2, 3)))
    for place in range(len(use.shapes)):
        use.propose(place, shape if place < 2 else shape[-1:])


def _biased(use: Use) -> None:
    use.propose(1, use.of_rank(0)[-1:])


def _fused_product(use: Use) -> None:
    """Propose stacks of matrices, either of them turned or not."""
    draw = use.draw
    turned = [use.choose(name, lambda: int(draw.chance(0.4))) for name in ("transA", "transB")]
    stack = draw.shape(draw.rng.choice((1, 2))) if draw.chance(0.4) else ()
    left = (*stack, draw.size(), draw.size())
    left = use.propose(0, left)
    check(len(left) >= 2)
    inner, columns = left[-2 if turned[0] else -1], draw.size()
    right = (columns, inner) if turned[1] else (inner, columns)
    use.propose(1, (*left[:-2], *right))


_REDUCTIONS = (
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceSumSquare",
    "ReduceL2",
)
_POOLS = ("MaxPool", "AveragePool")
_GLOBAL_POOLS = ("GlobalAveragePool", "GlobalMaxPool")
_PROPOSALS: Mapping[str, Callable[[Use], None]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "BatchNormalization": _normalised_channels,
    "InstanceNormalization": _normalised_channels,
    "LayerNormalization": _layer_normalization,
    "Concat": layout.concat,
    "Split": layout.split,
    "Slice": layout.slice_,
    "Transpose": layout.transpose,
    "Reshape": layout.reshape,
    "Pad": layout.pad,
    "Expand": layout.expand,
    "Tile": layout.tile,
    "Gather": layout.gather,
    "Shape": layout.shape_of,
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), layout.blocks),
    **dict.fromkeys(("Softmax", "LogSoftmax", "ArgMax", "ArgMin"), _with_axis),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(_POOLS, _pool),
    **dict.fromkeys(_GLOBAL_POOLS, _global_pool),
    "Attention": _projected_attention,
    "FusedMatMul": _fused_product,
    "MultiHeadAttention": _attention,
    **dict.fromkeys(("BiasGelu", "FastGelu"), _biased),
    **dict.fromkeys(("SkipLayerNormalization", "SkipLayerNormalizationAndSum"), _layer_norm_of_sum),
}
