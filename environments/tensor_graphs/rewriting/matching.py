"""Rules, compiled: where they match and what becomes of the graph there.

A match is a promise: `apply` works. The types are the ones that the rule needs, its conditions and
restrictions hold, the new outputs have the types of the old ones, something changes, and no node
will depend on itself. Expressions that depend on constants alone are left alone: they cost nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterator, Sequence
from typing import Any

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import Change, Ref
from environments.tensor_graphs.operators.operator import OperatorError
from environments.tensor_graphs.rewriting.joins import Start, joined, make_start
from environments.tensor_graphs.rewriting.orders import ascending, orders
from environments.tensor_graphs.rewriting.patterns import Found, Pattern
from environments.tensor_graphs.rewriting.plans import Plan, Planner
from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Call,
    Expression,
    Name,
    Term,
    variables,
)
from environments.tensor_graphs.rules.language.rule import Rule, RuleError


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """A place where a rule applies.

    Attributes:
      rule: its name.
      rule_number: its number, among the rules that are used together.
      location: what tells it from the rule's other matches in the graph: numbers of the nodes that
        are replaced, then, where inputs are taken in another order than the rule has them, which.
      replaced: outputs that are replaced.
      refs: what the variables stand for.
      values: what the attributes are.
      nodes: that the source takes apart, each once.
      plan: what is made.
      needs_check: whether the rest of the graph decides if a node would depend on itself.
    """

    rule: str
    rule_number: int
    location: tuple[int, ...]
    replaced: tuple[Ref, ...]
    refs: tuple[Ref, ...]
    values: tuple[Any, ...]
    nodes: tuple[int, ...]
    plan: Plan = dataclasses.field(compare=False, repr=False)
    needs_check: bool = False


class CompiledRule:
    """A rule, compiled to find its matches.

    Attributes:
      rule: the rule.
      number: its index among the rules that are used together.
      depth: how many edges away from a replaced node a change of the graph can affect a match.
      starts: where the search for matches can start, for all of its patterns.
    """

    def __init__(self, rule: Rule, number: int = 0) -> None:
        """Compile a rule.

        Raises:
          RuleError: it uses an operator or attribute that does not exist.
        """
        self.rule, self.number = rule, number
        rule = with_computed_attributes(rule)
        self._variables, self._names = rule.variables, rule.names
        self._planner = Planner(rule)
        try:
            found = [
                tuple(Pattern(root, self._variables, self._names) for root in source)
                for source in orders(rule)
            ]
        except (OperatorError, KeyError) as error:
            raise RuleError(f"rule {rule.name}: {error}") from None
        self._crossings = _crossings(rule)
        depths = [pattern.depth for patterns in found for pattern in patterns]
        self.depth = max(*depths, *(_depth(one) for one in rule.target))
        pairs = ascending(rule)
        self.starts = [
            make_start(order, patterns, number, pairs)
            for order, patterns in enumerate(found)
            for number in range(len(patterns))
        ]

    def matches_from(
        self, graph: Graph, start: Start, node: int, near: Container[int], opset: int = 0
    ) -> Iterator[Match]:
        """Matches that replace a node as one of the source's expressions.

        Args:
          graph: where to look.
          start: one of `starts`.
          node: number of the node.
          near: all nodes that are begun with: a match is found from the first in its source.
          opset: version of ONNX's operators that the graph's model has.
        """
        if not start.may_match(graph, node):
            return
        found = Found([None] * len(self._variables), [None] * len(self._names), [])
        if not start.pattern.match(graph.nodes, node, found):
            return
        wholes: list[tuple[tuple[int, ...], Found]] = [((node,), found)]
        for join in start.joins:
            wholes = [more for whole in wholes for more in joined(graph, join, near, *whole)]
        for roots, whole in wholes:
            match = self._finish(graph, start, roots, whole, opset)
            if match is not None:
                yield match

    def _finish(
        self, graph: Graph, start: Start, roots: tuple[int, ...], found: Found, opset: int
    ) -> Match | None:
        if start.joins:
            roots = tuple(roots[place] for place in start.places)
        nodes = graph.nodes
        refs: tuple[Ref, ...] = tuple(found.refs)  # type: ignore[arg-type]
        are_constant = tuple(graph.is_constant(ref.node) for ref in refs)
        types = tuple(nodes[ref.node].types[ref.output] for ref in refs)
        values = tuple(found.values)
        plan = self._planner.plan(types, are_constant, values, opset)
        if plan is None:
            return None
        replaced = tuple(
            Ref(root, pattern.output) for root, pattern in zip(roots, start.patterns, strict=True)
        )
        for ref, new in zip(replaced, plan.types, strict=True):
            if nodes[ref.node].types[ref.output] != new:
                return None
        if plan.changes_nothing(nodes, refs, replaced) or not _is_any_used(graph, replaced):
            return None
        needs_check = any(not are_constant[number] for number in self._crossings)
        return Match(
            self.rule.name,
            self.number,
            (*roots, start.order) if start.order else roots,
            replaced,
            refs,
            values,
            tuple(sorted(set(found.nodes))),
            plan,
            needs_check,
        )


def is_acyclic(graph: Graph, match: Match) -> bool:
    """Whether no node will depend on itself; of matches that need the check.

    What a target uses must not depend on another node that is replaced, whose own target uses what
    depends on the first one, and so on around.
    """
    roots = [ref.node for ref in match.replaced]
    uses = _used_variables(match.plan)
    below = [
        set().union(*(_roots_below(graph, match.refs[number].node, roots) for number in used))
        for used in uses
    ]
    done: set[int] = set()
    while len(done) < len(roots):
        ready = [
            number
            for number in range(len(roots))
            if number not in done and all(roots.index(one) in done for one in below[number])
        ]
        if not ready:
            return False
        done.update(ready)
    return True


def apply(graph: Graph, match: Match) -> tuple[Graph, Change]:
    """Apply a match; return the graph after it, and what changed."""
    edit = graph.edit()
    plan = match.plan
    made: list[Ref] = list(match.refs)
    for step in plan.steps:
        inputs = [
            None if place is None else _ref(made, place, plan.num_variables)
            for place in step.inputs
        ]
        made.append(edit.add(step.op, inputs, step.attributes, step.types, step.value))
    replacements = {
        old: _ref(made, place, plan.num_variables)
        for old, place in zip(match.replaced, plan.results, strict=True)
    }
    edit.replace(replacements, built={ref.node for ref in made[plan.num_variables :]})
    return edit.finish(is_acyclic=True)


def compile_rules(rules: Sequence[Rule]) -> tuple[CompiledRule, ...]:
    """Compile rules that are used together.

    Raises:
      RuleError: two have the same name, or one uses an operator or attribute that does not exist.
    """
    names = [one.name for one in rules]
    for name in names:
        if names.count(name) > 1:
            raise RuleError(f"rule {name}: there are {names.count(name)} of this name")
    return tuple(CompiledRule(one, number) for number, one in enumerate(rules))


def _ref(made: Sequence[Ref], place: Any, num_variables: int) -> Ref:
    ref = made[place.number]
    return ref if place.number < num_variables else Ref(ref.node, place.output)


def _is_any_used(graph: Graph, refs: Sequence[Ref]) -> bool:
    """Whether anybody uses one of these outputs; a node whose only output is not used is gone."""
    return any(
        len(graph.nodes[ref.node].types) == 1
        or ref in graph.outputs
        or any(ref in graph.nodes[user].inputs for user in graph.users(ref.node))
        for ref in refs
    )


def _depth(expression: Expression | None) -> int:
    if not isinstance(expression, Apply):
        return 0
    return 1 + max((_depth(one) for one in expression.inputs), default=0)


def _crossings(rule: Rule) -> tuple[int, ...]:
    """Numbers of variables through which replaced nodes could come to depend on each other.

    One that is used for the target of an expression and is not in another expression of the source
    may depend on that one.
    """
    order = rule.variables
    found = set()
    for target in rule.target:
        for name in variables(target):
            if not all(name in variables(source) for source in rule.source):
                found.add(order.index(name))
    return tuple(sorted(found)) if len(rule.source) > 1 else ()


def _used_variables(plan: Plan) -> list[set[int]]:
    """Of each result, the variables that it is computed of."""
    used: list[set[int]] = [{number} for number in range(plan.num_variables)]
    for step in plan.steps:
        used.append(set().union(*(used[one.number] for one in step.inputs if one is not None)))
    return [used[place.number] for place in plan.results]


def _roots_below(graph: Graph, node: int, roots: Sequence[int]) -> set[int]:
    """Those that a node depends on, and that no other of them is between."""
    found: set[int] = set()
    seen = {node}
    todo = [node]
    while todo:
        number = todo.pop()
        if number in roots:
            found.add(number)
            continue
        for used in graph.nodes[number].used:
            if used not in seen:
                seen.add(used)
                todo.append(used)
    return found


def with_computed_attributes(rule: Rule) -> Rule:
    """The same rule, in whose source attributes are bound and then compared."""
    conditions: list[Term] = []

    def bound(expression: Expression | None) -> Any:
        if not isinstance(expression, Apply):
            return expression
        attributes = []
        for name, value in expression.attributes:
            if isinstance(value, Call) and value.function != "list":
                conditions.append(Call("=", (Name(f"_{len(conditions)}"), value)))
                value = Name(f"_{len(conditions) - 1}")
            attributes.append((name, value))
        inputs = tuple(bound(one) for one in expression.inputs)
        return Apply(expression.op, inputs, tuple(attributes), expression.output)

    source = tuple(bound(one) for one in rule.source)
    if not conditions:
        return rule
    return dataclasses.replace(rule, source=source, conditions=(*rule.conditions, *conditions))
