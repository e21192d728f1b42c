"""Where the search for a rule begins, and how the rest of its source is found from there."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Iterator

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import Ref
from environments.tensor_graphs.rewriting.patterns import Found, Pattern


@dataclasses.dataclass(frozen=True)
class Join:
    """How another expression of a source is found.

    Attributes:
      pattern: of the expression.
      variable: number of a variable that is bound when it is looked for.
      path: positions of inputs from the expression's root to the variable.
      above: which of those that were found before are to be at smaller nodes.
      below: which are to be at larger nodes.
      is_earlier: whether it comes before the first one in the source. It may not be near a change
        then: the search that begins there finds the match, too.
    """

    pattern: Pattern
    variable: int
    path: tuple[int, ...]
    above: tuple[int, ...]
    below: tuple[int, ...]
    is_earlier: bool


@dataclasses.dataclass(frozen=True)
class Start:
    """Where the search for a rule begins: a node that may be one of those that it replaces.

    Attributes:
      order: number of the order in which inputs are taken.
      patterns: of the source in this order.
      pattern: the one of the node.
      joins: for the others, one after the other.
      places: for each pattern, when it is found.
      shared: position of the input that all of the source's expressions have, and through which
        they are found; None where there is no such input.
    """

    order: int
    patterns: tuple[Pattern, ...]
    pattern: Pattern
    joins: tuple[Join, ...]
    places: tuple[int, ...]
    shared: int | None

    def may_match(self, graph: Graph, node: int) -> bool:
        """Whether there are enough nodes near this one."""
        if graph.is_constant(node):
            return False
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
    """Begins with one pattern; the next one is the one that is nearest to a bound variable.

    Args:
      order: number of the order in which inputs are taken.
      patterns: of the source.
      first: which to begin with.
      pairs: of patterns of which the first one is to be found at the smaller node.
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
    graph: Graph, join: Join, near: Container[int], roots: tuple[int, ...], found: Found
) -> Iterator[tuple[tuple[int, ...], Found]]:
    """What was found, with another expression of the source."""
    ref = found.refs[join.variable]
    assert ref is not None
    above = max((roots[place] for place in join.above), default=-1)
    below = min((roots[place] for place in join.below), default=math.inf)
    for node in _above(graph, join.path, ref, join.pattern.op):
        if not above < node < below or node in roots or graph.is_constant(node):
            continue
        if join.is_earlier and node in near:
            continue
        more = found.copy()
        if join.pattern.match(graph.nodes, node, more):
            yield (*roots, node), more


def _above(graph: Graph, path: tuple[int, ...], ref: Ref, op: str) -> Iterator[int]:
    """Yield nodes of an operator from which a path of inputs leads to an output of a node."""
    ends = {ref.node}
    for _ in path:
        ends = {user for end in ends for user in graph.users(end)}
    return (end for end in sorted(ends) if graph.nodes[end].op == op)
