"""Vocabularies of the generator: operators, attributes, and worlds to compute expressions in.

Each vocabulary is small enough to build all its expressions, and large enough to show how its
operators interact. Attributes are terms. A source can contain only names, literals and lists of
them; other terms are for targets.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from environments.tensor_graphs.rules.generation.enumerate import Move
from environments.tensor_graphs.rules.generation.fingerprint import World
from environments.tensor_graphs.rules.language.expressions import Expression, parse, parse_term
from environments.tensor_graphs.rules.verification.draws import Draw

Shapes = Mapping[str, Sequence[int]]
WorldFn = Callable[[Draw], tuple[Shapes, Mapping[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Operators and operands that expressions are built from.

    Attributes:
      name: name of the vocabulary, for the command line.
      leaves: variables and constants.
      moves: operators with their attributes.
      world_fn: draws the shapes and attributes of a random world.
      max_size: largest number of operators in an expression.
      num_worlds: number of worlds to compute expressions in.
      is_exhaustive: whether rules are made as TASO makes them: each pair of equal expressions counts,
        in both directions, and a source may have computed attributes.
      ranks: the ranks that the specifications of the operators imply, by variable. They become
        conditions of a rule that is wrong without them.
    """

    name: str
    leaves: tuple[Expression, ...]
    moves: tuple[Move, ...]
    world_fn: WorldFn
    max_size: int = 3
    num_worlds: int = 12
    is_exhaustive: bool = False
    ranks: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def worlds(self, seed: int) -> list[World]:
        """Make the worlds; each has its own shapes, attributes and elements."""
        worlds = []
        for number in range(self.num_worlds):
            draw = Draw(random.Random(f"{self.name} {seed} {number}"))
            shapes, attributes = self.world_fn(draw)
            worlds.append(World(shapes, attributes, seed * 1000 + number))
        return worlds


def _moves(
    ops: str,
    arity: int = 1,
    outputs: int = 1,
    excluded: Sequence[Expression] = (),
    **attributes: Any,
) -> list[Move]:
    """Make a move for each operator and each combination of the attributes' values.

    The operators take `arity` inputs, the first none of those `excluded`; an attribute is the text
    of a term, or a list of such texts.
    """
    names = sorted(attributes)
    terms = [attributes[name] for name in names]
    values = [[term] if isinstance(term, str) else term for term in terms]
    return [
        Move(
            op, arity, tuple(zip(names, map(parse_term, chosen), strict=True)), outputs,
            tuple(excluded),
        )  # fmt: skip
        for op in ops.split()
        for chosen in itertools.product(*values)
    ]


def _all(*moves: Sequence[Move]) -> tuple[Move, ...]:
    return tuple(itertools.chain(*moves))


def _leaves(*texts: str) -> tuple[Expression, ...]:
    return tuple(map(parse, texts))


def _perm(draw: Draw, rank: int) -> tuple[int, ...]:
    order = list(range(rank))
    draw.rng.shuffle(order)
    return tuple(order)


def _along(draw: Draw, shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """Return a shape whose size along one axis is mostly drawn anew."""
    return tuple(
        draw.size() if place == axis and draw.chance(0.7) else size
        for place, size in enumerate(shape)
    )


def _elementwise_world(draw: Draw) -> tuple[Shapes, Mapping[str, Any]]:
    base = draw.shape(draw.rng.randint(1, 3))
    return {"x": base, "y": draw.partner(base), "z": draw.partner(base)}, {}


def _layout_world(draw: Draw) -> tuple[Shapes, Mapping[str, Any]]:
    rank = draw.rng.choice((2, 3, 3, 4))
    base = draw.shape(rank)
    axis, p, q = draw.rng.randrange(rank), _perm(draw, rank), _perm(draw, rank)
    if draw.chance(0.2):
        p = tuple(range(rank))
    if draw.chance(0.2):
        q = tuple(sorted(range(rank), key=p.__getitem__))
    partner = _along(draw, base, axis)
    return {"x": base, "y": partner, "z": _along(draw, base, axis)}, {"p": p, "q": q, "a": axis}


def _reshape_world(draw: Draw) -> tuple[Shapes, Mapping[str, Any]]:
    base = draw.shape(draw.rng.choice((2, 3)))
    merged = (base[0] * base[1], *base[2:])
    apart = (1, *base) if draw.chance(0.5) else (*base[:1], 1, *base[1:])
    shapes = [merged, apart]
    draw.rng.shuffle(shapes)
    partner = base if draw.chance(0.7) else draw.partner(base)
    return {"x": base, "y": partner}, {"s": shapes[0], "t": shapes[1]}


def _matrix_world(draw: Draw) -> tuple[Shapes, Mapping[str, Any]]:
    rows, inner, columns, more = (draw.size() for _ in range(4))
    batch = draw.shape(draw.rng.choice((0, 0, 1, 2)))
    weights = [(inner, columns), (inner, more if draw.chance(0.4) else columns)]
    if draw.chance(0.25):
        weights[1] = (columns, more)
    shapes = {
        "x": (*batch, rows, inner),
        "w": weights[0],
        "v": weights[1],
        "b": (columns,) if draw.chance(0.7) else (rows, columns),
        "c": (),
    }
    if draw.chance(0.25):
        shapes["x"] = (*batch, inner, rows)
    rank = len(batch) + 2
    swap = (*range(rank - 2), rank - 1, rank - 2) if draw.chance(0.3) else (1, 0)
    return shapes, {"p": swap}


def _convolution_world(draw: Draw) -> tuple[Shapes, Mapping[str, Any]]:
    groups = draw.rng.choice((1, 1, 2))
    inner, outer = draw.size(), draw.size()
    kernel = draw.rng.choice(((1, 1), (3, 3), (2, 1)))
    pads = draw.rng.choice(((0,) * 4, (1, 1, 1, 1), (1, 0, 0, 1)))
    batch, sizes = draw.size(), (draw.rng.randint(3, 4), draw.rng.randint(3, 4))
    weight = (outer * groups, inner, *kernel)
    partner = (*_along(draw, weight[:2], draw.rng.choice((0, 0, 1))), *kernel)
    shapes = {
        "x": (batch, inner * groups, *sizes),
        "y": (batch, (inner if draw.chance(0.7) else draw.size()) * groups, *sizes),
        "w": weight,
        "v": partner,
        "c": () if draw.chance(0.6) else (outer * groups, 1, 1),
    }
    strides = draw.rng.choice(((1, 1), (1, 1), (2, 1)))
    return shapes, {"s": strides, "p": pads, "d": (1, 1), "g": groups}


def _pool_world(draw: Draw) -> tuple[Shapes, Mapping[str, Any]]:
    shape = (draw.size(), draw.size(), draw.rng.randint(3, 5), draw.rng.randint(3, 5))
    kernel = draw.rng.choice(((2, 2), (3, 3), (1, 1), (2, 3)))
    pads = draw.rng.choice(((0,) * 4, (0,) * 4, (0, 1, 0, 0)))
    strides = draw.rng.choice(((1, 1), (2, 2)))
    attributes = {"k": kernel, "p": pads, "s": strides, "i": draw.rng.randint(0, 1)}
    return {"x": shape, "y": _along(draw, shape, 1), "c": ()}, attributes


def _taso_matrix_world(draw: Draw) -> tuple[Shapes, Mapping[str, Any]]:
    """Matrices of sizes from 2 to 4: all square, or apart in what a concatenation lets differ."""
    rows, inner, columns, more = (draw.rng.randint(2, 4) for _ in range(4))
    shapes = {"x": (rows, inner), "y": (rows, inner), "w": (inner, columns), "v": (inner, columns)}
    kind = draw.rng.choice(("square",) * 3 + ("rows", "columns", "inner", "chain", "equal"))
    if kind == "square":
        shapes = dict.fromkeys(shapes, (inner, inner))
    elif kind == "rows":
        shapes["y"] = (more, inner)
    elif kind == "columns":
        shapes["v"] = (inner, more)
    elif kind == "inner":
        shapes |= {"y": (rows, more), "v": (more, columns)}
    elif kind == "chain":
        shapes["v"] = (columns, more)
    return {**shapes, "c": ()}, {}


def _taso_image_world(draw: Draw) -> tuple[Shapes, Mapping[str, Any]]:
    """Images and kernels of at most 4 x 4 x 4 x 4, padded so that a convolution keeps the size."""
    batch, more = draw.rng.randint(1, 2), draw.rng.randint(2, 4)
    groups, sizes = draw.rng.choice((1, 1, 2)), (draw.rng.randint(3, 4), draw.rng.randint(3, 4))
    channels = draw.rng.choice((2, 4)) if groups > 1 else draw.rng.randint(2, 4)
    kernel = draw.rng.choice(((3, 3), (3, 3), (1, 3), (3, 1), (1, 1)))
    image, weight = (batch, channels, *sizes), (channels, channels // groups, *kernel)
    shapes = {"x": image, "y": image, "w": weight, "v": weight}
    kind = draw.rng.choice(("equal",) * 3 + ("batches", "channels", "kernels", "enlarged"))
    if kind == "batches":
        shapes["y"] = (3, *image[1:])
    elif kind == "channels" and groups == 1:
        shapes |= {"y": (batch, more, *sizes), "v": (channels, more, *kernel)}
    elif kind == "kernels" and groups == 1:
        shapes["v"] = (more, *weight[1:])
    elif kind == "enlarged":
        kernel = (1, 1)
        shapes |= {"w": (*weight[:2], 1, 1), "v": (*weight[:2], 3, 3)}
    pads = (kernel[0] // 2, kernel[1] // 2) * 2
    attributes = {"p": pads, "s": (1, 1), "d": (1, 1), "g": groups, "i": draw.rng.randint(0, 1)}
    return {**shapes, "c": ()}, {**attributes, "k": (3, 3), "q": (1, 1, 1, 1)}


def _reduction_world(draw: Draw) -> tuple[Shapes, Mapping[str, Any]]:
    rank = draw.rng.choice((2, 3, 4))
    base = draw.shape(rank)
    axes = tuple(sorted(draw.rng.sample(range(rank), draw.rng.randint(1, rank - 1))))
    others = tuple(sorted(draw.rng.sample(range(rank), 1)))
    attributes = {"r": axes, "t": others, "k": draw.rng.randint(0, 1), "p": _perm(draw, rank)}
    return {"x": base, "y": draw.partner(base), "c": ()}, attributes


_PERMS = ["$p", "$q", "(permute $p $q)", "(inverse $p)"]
_AXES = ["$a", "(nth $p $a)", "(nth (inverse $p) $a)"]
_CONV: dict[str, Any] = {"strides": "$s", "pads": "$p", "dilations": "$d"}
_POOL: dict[str, Any] = {"kernel_shape": "$k", "strides": "$s", "pads": "$p"}
_POOL_3: dict[str, Any] = {"kernel_shape": "$k", "strides": "$s", "pads": "$q"}
_LAST = "(- (rank ?x) 1)"
_CUTS = {
    axis: [f"(list (dim {a} {place}) (dim {b} {place}))" for a, b, place in parts]
    for axis, parts in {
        "matrix 0": (("?x", "?y", 0), ("?w", "?v", 0)),
        "matrix 1": (("?x", "?y", 1), ("?w", "?v", 1)),
        "image 0": (("?x", "?y", 0),),
        "image 1": (("?x", "?y", 1), ("?w", "?v", 0)),
    }.items()
}
_WIDER = f"(list {' '.join(f'(+ (nth $p {side}) 1)' for side in range(4))})"
_IMAGES = _leaves("?x", "?y")
_KERNELS = _leaves("?w", "?v", "(identity_kernel (dim ?x 1) $g 2 (dtype ?x))")
_NUMBERS = _leaves("?c", "(full 1.0 (list) (dtype ?x))")

VOCABULARIES: tuple[Vocabulary, ...] = (
    Vocabulary(
        "arithmetic",
        _leaves("?x", "?y", "?z", "(full 0.0 (list) (dtype ?x))", "(full 1.0 (list) (dtype ?x))"),
        _all(_moves("Neg"), _moves("Add Mul Sub Div", 2)),
        _elementwise_world,
        num_worlds=8,
        max_size=2,
    ),
    Vocabulary(
        "order",
        _leaves("?x", "?y", "?z"),
        _all(_moves("Max Min", 2), _moves("Relu Neg Abs")),
        _elementwise_world,
        num_worlds=8,
    ),
    Vocabulary(
        "functions",
        _leaves("?x", "?y"),
        _all(_moves("Reciprocal Sqrt Exp Relu Neg Abs"), _moves("Mul Div Pow", 2)),
        _elementwise_world,
        num_worlds=8,
        max_size=2,
    ),
    Vocabulary(
        "transposes",
        _leaves("?x", "?y"),
        _all(
            _moves("Transpose", perm=_PERMS),
            _moves("Concat", 2, axis=_AXES),
            _moves("Add Mul", 2),
            _moves("Relu"),
            _moves("Softmax", axis=_AXES),
            _moves("ReduceMean ReduceMax", axes=[f"(list {axis})" for axis in _AXES]),
        ),
        _layout_world,
        max_size=2,
        num_worlds=16,
    ),
    Vocabulary(
        "reshapes",
        _leaves("?x", "?y"),
        _all(
            _moves("Reshape", shape=["$s", "$t", "(shape ?x)"]),
            _moves("Add Mul Div", 2),
            _moves("Relu Exp"),
        ),
        _reshape_world,
        num_worlds=16,
    ),
    Vocabulary(
        "concats",
        _leaves("?x", "?y", "?z"),
        _all(
            _moves("Concat", 2, axis="$a"),
            _moves("Split", outputs=2, axis="$a", split="(list (dim ?x $a) (dim ?y $a))"),
            _moves("Add Mul", 2),
            _moves("Relu"),
        ),
        _layout_world,
    ),
    Vocabulary(
        "matrices",
        _leaves("?x", "?w", "?v", "?b", "?c"),
        _all(
            _moves("MatMul", 2),
            _moves("Add Mul", 2),
            _moves("Neg"),
            _moves("Transpose", perm=["$p", "(list 1 0)"]),
        ),
        _matrix_world,
        max_size=2,
        num_worlds=16,
    ),
    Vocabulary(
        "merged matrices",
        _leaves("?x", "?w", "?v"),
        _all(
            _moves("MatMul", 2),
            _moves("Concat", 2, axis=["0", "1", _LAST]),
            _moves("Split", outputs=2, axis=_LAST, split="(list (dim ?w -1) (dim ?v -1))"),
        ),
        _matrix_world,
        num_worlds=16,
    ),
    Vocabulary(
        "convolutions",
        _leaves("?x", "?y", "?w", "?v", "?c"),
        _all(
            _moves("Conv", 2, group=["$g", "1"], **_CONV),
            _moves("Concat", 2, axis=["0", "1"]),
            _moves("Split", outputs=2, axis="1", split="(list (dim ?w 0) (dim ?v 0))"),
            _moves("Add Mul", 2),
            _moves("Relu"),
        ),
        _convolution_world,
        max_size=2,
        num_worlds=14,
    ),
    Vocabulary(
        "pools",
        _leaves("?x", "?y", "?c"),
        _all(
            _moves("MaxPool", **_POOL),
            _moves("AveragePool", count_include_pad="$i", **_POOL),
            _moves("GlobalAveragePool GlobalMaxPool"),
            _moves("Concat", 2, axis=["0", "1"]),
            _moves("Relu Neg"),
            _moves("Add Mul Max", 2),
        ),
        _pool_world,
    ),
    Vocabulary(
        "reductions",
        _leaves("?x", "?y", "?c"),
        _all(
            _moves("ReduceSum ReduceMean ReduceMax", axes=["$r", "$t"], keepdims="$k"),
            _moves("Add Mul Sub", 2),
            _moves("Neg Relu"),
        ),
        _reduction_world,
    ),
)

TASO: tuple[Vocabulary, ...] = (
    Vocabulary(
        "taso matrices",
        (*_leaves("?x", "?y", "?w", "?v"), *_NUMBERS),
        _all(
            _moves("MatMul", 2),
            _moves("Add Mul", 2),
            _moves("Relu", 1, 1, _NUMBERS),
            _moves("Transpose", perm="(list 1 0)"),
            _moves("Concat", 2, axis=["0", "1"]),
            *(
                _moves("Split", outputs=2, axis=axis, split=_CUTS[f"matrix {axis}"])
                for axis in "01"
            ),
        ),
        _taso_matrix_world,
        num_worlds=16,
        is_exhaustive=True,
        ranks=dict.fromkeys("xywv", 2),
    ),
    Vocabulary(
        "taso images",
        (*_IMAGES, *_KERNELS, *_NUMBERS),
        _all(
            _moves(
                *("Conv", 2, 1, _KERNELS),
                **{"group": "$g", "pads": ["$p", _WIDER], "strides": "$s", "dilations": "$d"},
            ),
            _moves("AveragePool", 1, 1, _KERNELS, count_include_pad="$i", **_POOL_3),
            _moves("MaxPool", 1, 1, _KERNELS, **_POOL_3),
            _moves("Pad", 1, 1, _IMAGES, pads="(list 0 0 1 1 0 0 1 1)"),
            _moves("Add Mul", 2),
            _moves("Relu", 1, 1, _NUMBERS),
            _moves("Concat", 2, axis=["0", "1"]),
            *(_moves("Split", outputs=2, axis=axis, split=_CUTS[f"image {axis}"]) for axis in "01"),
        ),
        _taso_image_world,
        num_worlds=16,
        is_exhaustive=True,
        ranks=dict.fromkeys("xywv", 4),
    ),
)
"""The operators of TASO's generator, as the thesis uses it; it names none itself."""
