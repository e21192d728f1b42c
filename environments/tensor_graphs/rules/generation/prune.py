"""Find rules that add nothing to others (section 3.1 of the thesis: renamings, common subgraphs).

Renamings           the same rule with other names, or operands of a commutative operator exchanged
Common subgraphs    source and target share an expression; a rule with a variable in its place is
                    more general (figure 3.1)
Implied             a few steps by other rules have the same effect
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from environments.tensor_graphs.operators import table
from environments.tensor_graphs.rules.generation.generalise import as_source, as_target, is_source
from environments.tensor_graphs.rules.language import terms
from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Call,
    Expression,
    Literal,
    Name,
    Part,
    Variable,
    names,
    parts,
    substitute,
    variables,
)
from environments.tensor_graphs.rules.language.rule import Rule, RuleError
from environments.tensor_graphs.rules.language.terms import Bindings
from environments.tensor_graphs.rules.verification.computations import Computation, add_expression

Place = tuple[int, int]

_MOST_VARIANTS = 64
_MOST_STATES = 400
_COMMON = "common"


def canonical(rule: Rule) -> str:
    """Return a text that is the same for all renamings of a rule."""
    orders = [list(itertools.islice(_variants(root), _MOST_VARIANTS)) for root in rule.source]
    texts = []
    for sources in itertools.islice(itertools.product(*orders), _MOST_VARIANTS):
        pairs = zip(sources, rule.target, strict=True)
        for arranged in itertools.permutations(pairs) if len(sources) < 4 else [tuple(pairs)]:
            old, new = zip(*arranged, strict=True)
            values: dict[str, Part] = {}
            for number, name in enumerate(variables(*old)):
                values[f"?{name}"] = Variable(f"v{number}")
            for number, name in enumerate(names(*old)):
                values[f"${name}"] = Name(f"n{number}")
            renamed = [str(substitute(root, values)) for root in old]
            renamed += [_sorted_text(substitute(root, values)) for root in new]
            conditions = sorted(str(substitute(condition, values)) for condition in rule.conditions)
            texts.append("\n".join([*renamed, *conditions]))
    return min(texts)


def _variants(expression: Expression) -> Iterator[Expression]:
    """Yield an expression with the operands of commutative operators in all orders."""
    if not isinstance(expression, Apply):
        yield expression
        return
    inputs: list[list[Expression | None]] = [
        [None] if operand is None else [*_variants(operand)] for operand in expression.inputs
    ]
    for chosen in itertools.product(*inputs):
        yield dataclasses.replace(expression, inputs=chosen)
        if table.OPERATORS[expression.op].commutative and chosen[0] != chosen[1]:
            yield dataclasses.replace(expression, inputs=(chosen[1], chosen[0], *chosen[2:]))


def _sorted_text(part: Part | None) -> str:
    """Return the text of an expression, with the operands of commutative operators sorted."""
    if not isinstance(part, Apply):
        return str(part)
    inputs = [_sorted_text(operand) for operand in part.inputs]
    if table.OPERATORS[part.op].commutative:
        inputs.sort()
    attributes = " ".join(f":{name} {value}" for name, value in part.attributes)
    return f"({part.op}.{part.output} {' '.join(inputs)} {attributes})"


def without_common(rule: Rule) -> Iterator[Rule]:
    """Yield more general rules: each has a variable for an expression that both sides share."""
    inside = {
        part
        for root in rule.source
        for part in parts(root)
        if isinstance(part, Apply) and part not in rule.source
    }
    for part in sorted(inside, key=str, reverse=True):
        if not any(part in tuple(parts(root)) for root in rule.target):
            continue
        new = Variable(_COMMON)
        try:
            yield dataclasses.replace(
                rule,
                source=tuple(_replaced(root, part, new) for root in rule.source),
                target=tuple(_replaced(root, part, new) for root in rule.target),
            )
        except RuleError:
            continue


def _replaced(expression: Expression, old: Expression, new: Expression) -> Expression:
    if expression == old:
        return new
    if not isinstance(expression, Apply):
        return expression
    inputs = tuple(
        operand if operand is None else _replaced(operand, old, new)
        for operand in expression.inputs
    )
    return dataclasses.replace(expression, inputs=inputs)


class Rewriter:
    """Applies rules to the steps of a computation.

    Args:
      bindings: types and values of the expressions' variables and attributes.
      rules: the rules to apply, in both directions where that is possible.
    """

    def __init__(self, bindings: Bindings, rules: Sequence[Rule]) -> None:
        self._bindings = bindings
        self._computation = Computation()
        self._sizes: list[int] = []
        self._rules: dict[str, list[tuple[Apply, Expression, Rule]]] = {}
        for rule in rules:
            self.add_rule(rule)

    def add_rule(self, rule: Rule) -> None:
        """Add a rule; it is also applied backwards if its target can be matched."""
        if len(rule.source) > 1:
            return
        (source,), (target,) = rule.source, rule.target
        self._add_direction(source, target, rule)
        if not is_source(target):
            return
        back = as_source(target)
        bound = {*variables(back), *names(back)}
        if bound >= {*variables(source, *rule.conditions), *names(source, *rule.conditions)}:
            self._add_direction(back, as_target(source), rule)

    def leads_to(self, old: Expression, new: Expression, depth: int) -> bool:
        """Return whether rules turn one expression into another.

        Args:
          old: the expression to rewrite.
          new: the expression to reach.
          depth: largest number of steps. No expression on the way may have more operators than the
            larger of the two.
        """
        start = add_expression(self._computation, old, self._bindings)
        goal = add_expression(self._computation, new, self._bindings)
        most = max(self._size(start), self._size(goal))
        reached, border = {start}, [start]
        for _ in range(depth):
            border = [two for place in border for two in self._neighbours(place)]
            border = [
                place
                for place in dict.fromkeys(border)
                if place not in reached and self._size(place) <= most
            ]
            reached.update(border)
            if goal in reached:
                return True
            if len(reached) > _MOST_STATES:
                return False
        return goal in reached

    def _add_direction(self, source: Expression, target: Expression, rule: Rule) -> None:
        if isinstance(source, Apply):
            self._rules.setdefault(source.op, []).append((source, target, rule))

    def _neighbours(self, place: Place) -> Iterator[Place]:
        step = self._computation.steps[place[0]]
        for source, target, rule in self._rules.get(step.op, ()):
            for variables_, attributes in self._matches(source, place, {}, {}):
                new = self._build(target, rule, variables_, attributes)
                if new is not None and self._type(new) == self._type(place):
                    yield new
        for position, operand in enumerate(step.inputs):
            for neighbour in self._neighbours(operand) if operand is not None else ():
                inputs = list(step.inputs)
                inputs[position] = neighbour
                yield self._computation.add(step.op, inputs, dict(step.attributes), place[1])

    def _matches(
        self,
        pattern: Expression,
        place: Place,
        found: Mapping[str, Place],
        values: Mapping[str, Any],
    ) -> Iterator[tuple[Mapping[str, Place], Mapping[str, Any]]]:
        if isinstance(pattern, Variable):
            if found.get(pattern.name, place) == place:
                yield {**found, pattern.name: place}, values
            return
        step = self._computation.steps[place[0]]
        if isinstance(pattern, Array):
            wanted = pattern.arguments[0]
            if step.value is None or not isinstance(wanted, Literal):
                return
            if bool((step.value == wanted.value).all()):
                yield found, values
            return
        if step.op != pattern.op or place[1] != pattern.output:
            return
        if len(step.inputs) != len(pattern.inputs):
            return
        named = dict(pattern.attributes)
        for name, value in step.attributes:
            usual = Literal(table.OPERATORS[step.op].attributes[name])
            extended = _unified(named.get(name, usual), value, values)
            if extended is None:
                return
            values = extended
        orders = [step.inputs]
        if table.OPERATORS[step.op].commutative:
            orders.append(step.inputs[::-1])
        for inputs in orders:
            yield from self._match_all(pattern.inputs, inputs, found, values)

    def _match_all(
        self, patterns: Sequence[Any], places: Sequence[Any], found: Any, values: Any
    ) -> Iterator[tuple[Mapping[str, Place], Mapping[str, Any]]]:
        if not patterns:
            yield found, values
            return
        for more, also in self._matches(patterns[0], places[0], found, values):
            yield from self._match_all(patterns[1:], places[1:], more, also)

    def _build(
        self, target: Expression, rule: Rule, found: Mapping[str, Place], values: Any
    ) -> Place | None:
        bindings = Bindings({name: self._type(place) for name, place in found.items()}, values)
        if not all(terms.holds(condition, bindings) for condition in rule.conditions):
            return None
        try:
            return self._make(target, bindings, found)
        except (ValueError, KeyError, IndexError):
            return None

    def _make(self, target: Expression, bindings: Bindings, found: Mapping[str, Place]) -> Place:
        if isinstance(target, Variable):
            return found[target.name]
        if isinstance(target, Array):
            return self._computation.add_constant(terms.make_array(target, bindings))
        inputs = [
            None if operand is None else self._make(operand, bindings, found)
            for operand in target.inputs
        ]
        values = {
            name: terms.as_attribute(terms.evaluate(term, bindings))
            for name, term in target.attributes
        }
        return self._computation.add(target.op, inputs, values, target.output)

    def _type(self, place: Place) -> Any:
        return self._computation.type_of(place)

    def _size(self, place: Place) -> int:
        """Return the number of operators in an expression; shared ones count each time."""
        for step in self._computation.steps[len(self._sizes) :]:
            inputs = sum(self._sizes[operand[0]] for operand in step.inputs if operand is not None)
            self._sizes.append(inputs + 1 if step.op else 0)
        return self._sizes[place[0]]


def _unified(pattern: Any, value: Any, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if isinstance(pattern, Name):
        if values.get(pattern.name, value) != value:
            return None
        return {**values, pattern.name: value}
    if isinstance(pattern, Literal):
        return values if pattern.value == value else None
    if isinstance(pattern, Call) and pattern.function == "list":
        if not isinstance(value, tuple) or len(value) != len(pattern.arguments):
            return None
        for one, item in zip(pattern.arguments, value, strict=True):
            extended = _unified(one, item, values)
            if extended is None:
                return None
            values = extended
        return values
    return None
