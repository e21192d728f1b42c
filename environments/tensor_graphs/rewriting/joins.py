"""Plan the search for a rule's source: where it begins, and how it finds the other expressions.

The source of a rule can have several expressions. A search begins at a node that may be the root of
one of them (`Start`). It finds each other expression through a variable that both share (`Join`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Iterator

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import Ref
from environments.tensor_graphs.rewriting.patterns import Found, Pattern


@dataclasses.dataclass(frozen=True)
class Join:
    """How a search finds one more expression of a source.

    Attributes:
      pattern: the pattern of the expression.
      variable: number of a variable that is already bound at that time.
      path: positions of inputs that lead from the expression's root to the variable.
      above: the expressions, by their order in the search, whose roots must have smaller numbers
        than this one's.
      below: the expressions whose roots must have larger numbers, given likewise.
      is_earlier: whether the source lists this expression before the one that the search began
        with. Its root must not be near a change then, because the search that begins at that root
        finds the same match.
    """

    pattern: Pattern
    variable: int
    path: tuple[int, ...]
    above: tuple[int, ...]
    below: tuple[int, ...]
    is_earlier: bool


@dataclasses.dataclass(frozen=True)
class Start:
    """One way to search for a rule: begin with the root of one expression, then join the others.

    Attributes:
      order: index of the source in `orders(rule)`, which exchanges inputs of commutative operators.
      patterns: patterns of the source's expressions, with their inputs in this order.
      pattern: the pattern that the search begins with.
      joins: how the search finds the other expressions, one after another.
      places: for each of `patterns`, its position in the search.
      shared: position of the input through which the search finds all other expressions, if that
        is a direct input of every root; None otherwise.
    """

    order: int
    patterns: tuple[Pattern, ...]
    pattern: Pattern
    joins: tuple[Join, ...]
    places: tuple[int, ...]
    shared: int | None

    def may_match(self, graph: Graph, node: int) -> bool:
        """Whether a match may begin at a node; a quick check before the pattern is tried.

        If all expressions share an input, that input must have as many users as there are
        expressions.
        """
        if self.shared is None:
            return True
        ref = graph.nodes[node].inputs[self.shared]
        return ref is not None and len(graph.users(ref.node)) > len(self.joins)


def make_start(
    order: int,
    patterns: tuple[Pattern, ...],
    first: int,
    pairs: tuple[tuple[int, int], ...],
) -> Start:
    """Plan a search that begins with one pattern.

    Each next pattern is the one with the shortest path from its root to a variable that is bound.

    Args:
      order: index of the source in `orders(rule)`.
      patterns: patterns of the source's expressions.
      first: index of the pattern to begin with.
      pairs: pairs of pattern indices (i, j); the root of i must have the smaller number.
    """
    sequence, joins = [first], []
    bound = set(patterns[first].paths)
    while len(sequence) < len(patterns):
        _, number, variable, path = min(
            (len(path), place, variable, path)
            for place, pattern in enumerate(patterns)
            if place not in sequence
            for variable, path in pattern.paths.items()
            if variable in bound
        )
        above = tuple(sequence.index(i) for i, j in pairs if j == number and i in sequence)
        below = tuple(sequence.index(j) for i, j in pairs if i == number and j in sequence)
        joins.append(Join(patterns[number], variable, path, above, below, number < first))
        sequence.append(number)
        bound |= set(patterns[number].paths)
    places = tuple(sequence.index(place) for place in range(len(patterns)))
    keys = {(join.variable, len(join.path)) for join in joins}
    shared = None
    if len(keys) == 1 and len(path := patterns[first].paths[joins[0].variable]) == 1:
        shared = path[0] if keys == {(joins[0].variable, 1)} else None
    return Start(order, patterns, patterns[first], tuple(joins), places, shared)


def joined(
    graph: Graph, join: Join, near: Container[int], roots: tuple[int, ...], bound: Found
) -> Iterator[tuple[tuple[int, ...], Found]]:
    """Extend a partial match by one more expression of the source, in every way that fits.

    Yields:
      The roots with the new one at the end, and all that is bound then.
    """
    ref = bound.refs[join.variable]
    assert ref is not None
    above = max((roots[place] for place in join.above), default=-1)
    below = min((roots[place] for place in join.below), default=math.inf)
    for node in _above(graph, join.path, ref, join.pattern.op):
        if not above < node < below or node in roots or graph.is_constant(node):
            continue
        if join.is_earlier and node in near:
            continue
        more = bound.copy()
        if join.pattern.match(graph.nodes, node, more):
            yield (*roots, node), more


def _above(graph: Graph, path: tuple[int, ...], ref: Ref, op: str) -> Iterator[int]:
    """Return, in ascending order, the nodes of an operator that lie above a node.

    These are the nodes from which `len(path)` edges lead down to it, by whichever inputs; the
    pattern then checks which inputs they are.
    """
    ends = {ref.node}
    for _ in path:
        ends = {user for end in ends for user in graph.users(end)}
    return (end for end in sorted(ends) if graph.nodes[end].op == op)
