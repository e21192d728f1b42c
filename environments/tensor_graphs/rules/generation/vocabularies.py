"""The vocabularies that the package's rules are generated from.

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

from environments.tensor_graphs.rules.generation.enumerate import Move, World
from environments.tensor_graphs.rules.language.expressions import Expression, parse, parse_term
from environments.tensor_graphs.rules.verification.draws import Draw

Shapes = Mapping[str, Sequence[int]]
WorldFn = Callable[[Draw], tuple[Shapes, Mapping[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Operators and operands that expressions are built from.

    Attributes:
      world_fn: draws the shapes and attributes of a random world.
      is_exhaustive: whether rules are made as TASO makes them: each pair of equal expressions
        counts, in both directions, and a source may have computed attributes.
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


def make_moves(
    ops: str,
    arity: int = 1,
    outputs: int = 1,
    excluded: Sequence[Expression] = (),
    is_distinct: bool = False,
    **attributes: Any,
) -> list[Move]:
    """Make a move for each operator and each combination of the attributes' values.

    The operators take `arity` inputs, the first none of those `excluded`, and the second not the
    first if `is_distinct`. An attribute is the text of a term, or a list of such texts.
    """
    names = sorted(attributes)
    terms = [attributes[name] for name in names]
    values = [[term] if isinstance(term, str) else term for term in terms]
    settings = [
        tuple(zip(names, map(parse_term, chosen), strict=True))
        for chosen in itertools.product(*values)
    ]
    return [
        Move(op, arity, chosen, outputs, tuple(excluded), is_distinct)
        for op in ops.split()
        for chosen in settings
    ]


def make_leaves(*texts: str) -> tuple[Expression, ...]:
    """Return the expressions of some texts."""
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
_LAST = "(- (rank ?x) 1)"

VOCABULARIES: tuple[Vocabulary, ...] = (
    Vocabulary(
        "arithmetic",
        make_leaves(
            "?x", "?y", "?z", "(full 0.0 (list) (dtype ?x))", "(full 1.0 (list) (dtype ?x))"
        ),
        (
            *make_moves("Neg"),
            *make_moves("Add Mul Sub Div", 2),
        ),
        _elementwise_world,
        num_worlds=8,
        max_size=2,
    ),
    Vocabulary(
        "order",
        make_leaves("?x", "?y", "?z"),
        (
            *make_moves("Max Min", 2),
            *make_moves("Relu Neg Abs"),
        ),
        _elementwise_world,
        num_worlds=8,
    ),
    Vocabulary(
        "functions",
        make_leaves("?x", "?y"),
        (
            *make_moves("Reciprocal Sqrt Exp Relu Neg Abs"),
            *make_moves("Mul Div Pow", 2),
        ),
        _elementwise_world,
        num_worlds=8,
        max_size=2,
    ),
    Vocabulary(
        "transposes",
        make_leaves("?x", "?y"),
        (
            *make_moves("Transpose", perm=_PERMS),
            *make_moves("Concat", 2, axis=_AXES),
            *make_moves("Add Mul", 2),
            *make_moves("Relu"),
            *make_moves("Softmax", axis=_AXES),
            *make_moves("ReduceMean ReduceMax", axes=[f"(list {axis})" for axis in _AXES]),
        ),
        _layout_world,
        max_size=2,
        num_worlds=16,
    ),
    Vocabulary(
        "reshapes",
        make_leaves("?x", "?y"),
        (
            *make_moves("Reshape", shape=["$s", "$t", "(shape ?x)"]),
            *make_moves("Add Mul Div", 2),
            *make_moves("Relu Exp"),
        ),
        _reshape_world,
        num_worlds=16,
    ),
    Vocabulary(
        "concats",
        make_leaves("?x", "?y", "?z"),
        (
            *make_moves("Concat", 2, axis="$a"),
            *make_moves("Split", outputs=2, axis="$a", split="(list (dim ?x $a) (dim ?y $a))"),
            *make_moves("Add Mul", 2),
            *make_moves("Relu"),
        ),
        _layout_world,
    ),
    Vocabulary(
        "matrices",
        make_leaves("?x", "?w", "?v", "?b", "?c"),
        (
            *make_moves("MatMul", 2),
            *make_moves("Add Mul", 2),
            *make_moves("Neg"),
            *make_moves("Transpose", perm=["$p", "(list 1 0)"]),
        ),
        _matrix_world,
        max_size=2,
        num_worlds=16,
    ),
    Vocabulary(
        "merged matrices",
        make_leaves("?x", "?w", "?v"),
        (
            *make_moves("MatMul", 2),
            *make_moves("Concat", 2, axis=["0", "1", _LAST]),
            *make_moves("Split", outputs=2, axis=_LAST, split="(list (dim ?w -1) (dim ?v -1))"),
        ),
        _matrix_world,
        num_worlds=16,
    ),
    Vocabulary(
        "convolutions",
        make_leaves("?x", "?y", "?w", "?v", "?c"),
        (
            *make_moves("Conv", 2, group=["$g", "1"], **_CONV),
            *make_moves("Concat", 2, axis=["0", "1"]),
            *make_moves("Split", outputs=2, axis="1", split="(list (dim ?w 0) (dim ?v 0))"),
            *make_moves("Add Mul", 2),
            *make_moves("Relu"),
        ),
        _convolution_world,
        max_size=2,
        num_worlds=14,
    ),
    Vocabulary(
        "pools",
        make_leaves("?x", "?y", "?c"),
        (
            *make_moves("MaxPool", **_POOL),
            *make_moves("AveragePool", count_include_pad="$i", **_POOL),
            *make_moves("GlobalAveragePool GlobalMaxPool"),
            *make_moves("Concat", 2, axis=["0", "1"]),
            *make_moves("Relu Neg"),
            *make_moves("Add Mul Max", 2),
        ),
        _pool_world,
    ),
    Vocabulary(
        "reductions",
        make_leaves("?x", "?y", "?c"),
        (
            *make_moves("ReduceSum ReduceMean ReduceMax", axes=["$r", "$t"], keepdims="$k"),
            *make_moves("Add Mul Sub", 2),
            *make_moves("Neg Relu"),
        ),
        _reduction_world,
    ),
)
