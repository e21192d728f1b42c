"""Find the orders of inputs in which a rule's source has to be searched for.

A graph may have the inputs of a commutative operator in either order, so both are searched for.
One order is enough where the rule is symmetric: exchanging the two inputs, and their variables in
the whole rule, gives the same rule. Both orders would then find the same change.
"""

from __future__ import annotations

from collections.abc import Iterator

from environments.tensor_graphs.operators.table import OPERATORS
from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Call,
    Expression,
    Literal,
    Name,
    Part,
    Variable,
    substitute,
)
from environments.tensor_graphs.rules.language.rule import Rule

Path = tuple[int, ...]
"""The way to an expression: its number in the source, then positions of inputs."""

_SYMMETRIC = frozenset({"=", "!=", "and", "or", "+", "*", "min", "max", "broadcast"})


def orders(rule: Rule) -> tuple[tuple[Apply, ...], ...]:
    """Return the sources to search for, one for each order of inputs; the rule's own is first."""
    sources: list[tuple[Expression, ...]] = [rule.source]
    for path in _commutative(rule.source):
        if not _is_symmetric(rule, path):
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


def _commutative(source: tuple[Expression, ...]) -> Iterator[Path]:
    """Yield the paths to commutative operators, inner operators before outer ones."""
    for number, root in enumerate(source):
        yield from _commutative_below(root, (number,))


def _commutative_below(expression: Expression | None, path: Path) -> Iterator[Path]:
    if not isinstance(expression, Apply):
        return
    for index, operand in enumerate(expression.inputs):
        yield from _commutative_below(operand, (*path, index))
    operator = OPERATORS.get(expression.op)
    if operator is None or not operator.commutative or len(expression.inputs) != 2:
        return
    if expression.inputs[0] != expression.inputs[1]:
        yield path


def _at(source: tuple[Expression, ...], path: Path) -> Apply:
    expression = source[path[0]]
    for index in path[1:]:
        assert isinstance(expression, Apply)
        expression = expression.inputs[index]  # type: ignore[assignment]
    assert isinstance(expression, Apply)
    return expression


def _exchanged(source: tuple[Expression, ...], path: Path) -> tuple[Expression, ...]:
    """Return the source with the two inputs of one operator exchanged."""
    done = list(source)
    done[path[0]] = _exchange(source[path[0]], path[1:])
    return tuple(done)


def _exchange(expression: Expression, path: Path) -> Apply:
    assert isinstance(expression, Apply)
    inputs = list(expression.inputs)
    if path:
        below = inputs[path[0]]
        assert below is not None
        inputs[path[0]] = _exchange(below, path[1:])
    else:
        inputs.reverse()
    return Apply(expression.op, tuple(inputs), expression.attributes, expression.output)


def _is_symmetric(rule: Rule, path: Path) -> bool:
    left, right = _at(rule.source, path).inputs
    if left is None or right is None:
        return False
    swap = _swap(left, right)
    if swap is None:
        return False
    renamed = tuple(substitute(each, swap) for each in rule.source)
    return (
        _exchanged(renamed, path) == rule.source  # type: ignore[arg-type]
        and _same_conditions(rule, swap)
        and all(_plain(substitute(each, swap)) == _plain(each) for each in rule.target)
    )


def _same_conditions(rule: Rule, swap: dict[str, Part]) -> bool:
    for terms in (rule.conditions, rule.restrictions):
        if {_plain(substitute(term, swap)) for term in terms} != {_plain(term) for term in terms}:
            return False
    return True


def _plain(part: Part | None) -> str:
    """Return a text of a part that is the same for every order of commutative arguments."""
    if isinstance(part, (Call, Array)):
        arguments = [_plain(argument) for argument in part.arguments]
        if part.function in _SYMMETRIC:
            arguments.sort()
        return f"({part.function} {' '.join(arguments)})"
    if isinstance(part, Apply):
        inputs = [_plain(operand) for operand in part.inputs]
        if OPERATORS[part.op].commutative and len(inputs) == 2:
            inputs.sort()
        attributes = [f":{name} {_plain(value)}" for name, value in part.attributes]
        return f"({part.op} {' '.join([*inputs, *attributes])})#{part.output}"
    return str(part)


def _swap(first: Expression, second: Expression) -> dict[str, Part] | None:
    """Return the exchange of names that turns each expression into the other; None if none does."""
    swap: dict[str, Part] = {}
    todo: list[tuple[Part | None, Part | None]] = [(first, second)]
    while todo:
        left, right = todo.pop()
        if isinstance(left, (Variable, Name)) and type(left) is type(right):
            for name, value in ((left, right), (right, left)):
                if swap.setdefault(str(name), value) != value:
                    return None
        elif isinstance(left, Apply) and isinstance(right, Apply):
            if (left.op, left.output) != (right.op, right.output):
                return None
            if len(left.inputs) != len(right.inputs):
                return None
            if [name for name, _ in left.attributes] != [name for name, _ in right.attributes]:
                return None
            todo += zip(left.inputs, right.inputs, strict=True)
            todo += [
                (mine, yours)
                for (_, mine), (_, yours) in zip(left.attributes, right.attributes, strict=True)
            ]
        elif isinstance(left, (Call, Array)) and isinstance(right, (Call, Array)):
            if left.function != right.function or len(left.arguments) != len(right.arguments):
                return None
            todo += zip(left.arguments, right.arguments, strict=True)
        elif isinstance(left, Literal) and isinstance(right, Literal):
            if left != right:
                return None
        elif left is not None or right is not None:
            return None
    return swap
