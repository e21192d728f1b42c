"""Plan the search for a rule's source: in which orders of inputs, where it begins, what comes next.

A graph may have the inputs of a commutative operator in either order, so both are searched for
(`orders`). One order is enough where the rule is symmetric: exchanging the two inputs, and their
variables in the whole rule, gives the same rule. Both orders would then find the same change.

The source of a rule can have several expressions. A search begins at a node that may be the root of
one of them (`Start`). It finds each other expression through a variable that both share (`Join`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Iterator

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import Ref
from environments.tensor_graphs.operators.table import OPERATORS
from environments.tensor_graphs.rewriting.patterns import Found, Pattern
from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Call,
    Expression,
    Name,
    Part,
    Variable,
    children,
    substitute,
)
from environments.tensor_graphs.rules.language.rule import Rule

Path = tuple[int, ...]
"""The way to an expression: its number in the source, then positions of inputs."""

_SYMMETRIC = frozenset({"=", "!=", "and", "or", "+", "*", "min", "max", "broadcast"})


def orders(rule: Rule) -> tuple[tuple[Apply, ...], ...]:
    """Return the sources to search for, one for each order of inputs; the rule's own is first."""
    sources: list[tuple[Expression | None, ...]] = [rule.source]
    for path, operator in _commutative(rule.source):
        if not _is_symmetric(rule, path, operator):
            sources += [_exchanged(source, path) for source in sources]
    return tuple(dict.fromkeys(sources))  # type: ignore[arg-type]


def ascending(rule: Rule) -> tuple[tuple[int, int], ...]:
    """Return pairs (i, j) of a source's expressions that are interchangeable.

    Exchanging the two leaves the rule's source and conditions the same, so a search need only find
    them with the root of i at the smaller node number. Only the order of the targets differs.
    """
    pairs = []
    for i in range(len(rule.source)):
        for j in range(i + 1, len(rule.source)):
            swap = _swap(rule.source[i], rule.source[j])
            if swap is None:
                continue
            renamed = [substitute(expression, swap) for expression in rule.source]
            renamed[i], renamed[j] = renamed[j], renamed[i]
            if tuple(renamed) == rule.source and _same_conditions(rule, swap):
                pairs.append((i, j))
    return tuple(pairs)


def _commutative(
    expressions: tuple[Expression | None, ...], path: Path = ()
) -> Iterator[tuple[Path, Apply]]:
    """Yield the commutative operators and the paths to them, inner ones before outer ones."""
    for index, expression in enumerate(expressions):
        if not isinstance(expression, Apply):
            continue
        yield from _commutative(expression.inputs, (*path, index))
        operator = OPERATORS.get(expression.op)
        if operator is None or not operator.commutative or len(expression.inputs) != 2:
            continue
        if expression.inputs[0] != expression.inputs[1]:
            yield (*path, index), expression


def _exchanged(
    expressions: tuple[Expression | None, ...], path: Path
) -> tuple[Expression | None, ...]:
    index, below = path[0], path[1:]
    operator = expressions[index]
    assert isinstance(operator, Apply)
    inputs = _exchanged(operator.inputs, below) if below else operator.inputs[::-1]
    changed = dataclasses.replace(operator, inputs=inputs)
    return (*expressions[:index], changed, *expressions[index + 1 :])


def _is_symmetric(rule: Rule, path: Path, operator: Apply) -> bool:
    left, right = operator.inputs
    if left is None or right is None:
        return False
    swap = _swap(left, right)
    if swap is None:
        return False
    renamed = tuple(substitute(each, swap) for each in rule.source)
    return (
        _exchanged(renamed, path) == rule.source
        and _same_conditions(rule, swap)
        and all(plain(substitute(each, swap)) == plain(each) for each in rule.target)
    )


def _same_conditions(rule: Rule, swap: dict[Part, Part]) -> bool:
    for terms in (rule.conditions, rule.restrictions):
        if {plain(substitute(term, swap)) for term in terms} != {plain(term) for term in terms}:
            return False
    return True


def plain(part: Part | None) -> str:
    """Return a text of a part that is the same for every order of commutative arguments."""
    if isinstance(part, (Call, Array)):
        arguments = [plain(argument) for argument in part.arguments]
        if part.function in _SYMMETRIC:
            arguments.sort()
        return f"({part.function} {' '.join(arguments)})"
    if isinstance(part, Apply):
        inputs = [plain(operand) for operand in part.inputs]
        if OPERATORS[part.op].commutative and len(inputs) == 2:
            inputs.sort()
        attributes = [f":{name} {plain(value)}" for name, value in part.attributes]
        return f"({part.op} {' '.join([*inputs, *attributes])})#{part.output}"
    return str(part)


def _swap(first: Expression, second: Expression) -> dict[Part, Part] | None:
    """Return the exchange of names that turns each expression into the other; None if none does."""
    swap: dict[Part, Part] = {}
    todo: list[tuple[Part | None, Part | None]] = [(first, second)]
    while todo:
        left, right = todo.pop()
        if isinstance(left, (Variable, Name)) and type(left) is type(right):
            if swap.setdefault(left, right) != right or swap.setdefault(right, left) != left:
                return None
        elif _head(left) != _head(right):
            return None
        else:
            todo += zip(children(left), children(right), strict=True)
    return swap


def _head(part: Part | None) -> object:
    """Return what a part is apart from what it is made of."""
    if isinstance(part, Apply):
        return part.op, part.output, len(part.inputs), [name for name, _ in part.attributes]
    if isinstance(part, (Call, Array)):
        return part.function, len(part.arguments)
    return part


@dataclasses.dataclass(frozen=True)
class Join:
    """How a search finds one more expression of a source.

    Attributes:
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
    order: int, patterns: tuple[Pattern, ...], first: int, pairs: tuple[tuple[int, int], ...]
) -> Start:
    """Plan a search that begins with the pattern of index `first`.

    Each next pattern is the one with the shortest path from its root to a variable that is bound.
    For each pair of pattern indices (i, j), the root of i must have the smaller number.
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
