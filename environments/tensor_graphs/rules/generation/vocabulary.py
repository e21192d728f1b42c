"""What a generator builds expressions from: operators, operands, and worlds to compute them in."""

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


def join(*moves: Sequence[Move]) -> tuple[Move, ...]:
    """Return all moves of several calls of `make_moves`."""
    return tuple(itertools.chain(*moves))


def make_leaves(*texts: str) -> tuple[Expression, ...]:
    """Return the expressions of some texts."""
    return tuple(map(parse, texts))
