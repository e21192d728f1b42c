"""Find rules that add nothing to others (section 3.1 of the thesis: renamings, common subgraphs).

The thesis finds the first two by equal hashes of graphs; here a renaming has the same text, and a
common subgraph gives way to a variable if the rule with the variable is right. The third is ours.

Renamings           the same rule with other names, or operands of a commutative operator exchanged
Common subgraphs    source and target share an expression; a rule with a variable in its place is
                    more general (figure 3.1)
Implied             a few steps by other rules have the same effect
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence

from environments.tensor_graphs.graph.nodes import CONSTANT, INPUT, Node, Ref
from environments.tensor_graphs.operators import table
from environments.tensor_graphs.rewriting.patterns import Found, Pattern
from environments.tensor_graphs.rewriting.plans import Plan, Planner
from environments.tensor_graphs.rewriting.starts import orders, plain
from environments.tensor_graphs.rules.generation.generalise import as_source, as_target, is_source
from environments.tensor_graphs.rules.language.computations import Computation, TooLargeError
from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Expression,
    Name,
    Part,
    Term,
    Variable,
    names,
    parts,
    substitute,
    variables,
)
from environments.tensor_graphs.rules.language.rule import GROUPS, Rule, RuleError
from environments.tensor_graphs.rules.language.terms import Bindings

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
            values: dict[Part, Part] = {}
            for number, name in enumerate(variables(*old)):
                values[Variable(name)] = Variable(f"v{number}")
            for number, name in enumerate(names(*old)):
                values[Name(name)] = Name(f"n{number}")
            renamed = [str(substitute(root, values)) for root in old]
            renamed += [plain(substitute(root, values)) for root in new]
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
        new: dict[Part, Part] = {part: Variable(_COMMON)}
        source, target = (
            tuple(substitute(root, new) for root in side) for side in (rule.source, rule.target)
        )
        with contextlib.suppress(RuleError):
            yield dataclasses.replace(rule, source=source, target=target)


class _Direction:
    """A rule of one expression, to be applied in one direction; its restrictions do not count."""

    def __init__(self, source: Apply, target: Expression, conditions: tuple[Term, ...]) -> None:
        rule = Rule("rule", (source,), (target,), conditions, types=GROUPS)
        self._num_variables, self._num_names = len(rule.variables), len(rule.names)
        self._patterns = [Pattern(root, rule.variables, rule.names) for (root,) in orders(rule)]
        self._planner = Planner(rule)

    def plans(self, nodes: Sequence[Node], place: Ref) -> Iterator[tuple[Plan, list[Ref]]]:
        """Yield plans for what may take a value's place, each with the values of the variables."""
        for pattern in self._patterns:
            bound = Found([None] * self._num_variables, [None] * self._num_names, [])
            if pattern.output == place.output and pattern.match(nodes, place.node, bound):
                refs = [ref for ref in bound.refs if ref is not None]
                types = tuple(nodes[ref.node].types[ref.output] for ref in refs)
                # Without restrictions, nothing asks which tensors are constant.
                plan = self._planner.plan(types, (False,) * len(refs), tuple(bound.values))
                if plan is not None and plan.types[0] == nodes[place.node].types[place.output]:
                    yield plan, refs


@functools.lru_cache(maxsize=4096)
def _directions(rule: Rule) -> tuple[tuple[str, _Direction], ...]:
    """Return the directions in which a rule can be applied, with the operators they begin at."""
    if len(rule.source) > 1:
        return ()
    (source,), (target,) = rule.source, rule.target
    directions = []
    for old, new in ((source, target), (as_source(target), as_target(source))):
        bound = {*variables(old), *names(old)}
        used = (new, *rule.conditions)
        if is_source(old) and bound >= {*variables(*used), *names(*used)}:
            assert isinstance(old, Apply)
            directions.append((old.op, _Direction(old, new, rule.conditions)))
    return tuple(directions)


class Rewriter:
    """Applies rules to expressions, each as a tree: what occurs twice is rewritten in one place."""

    def __init__(self, bindings: Bindings, rules: Sequence[Rule]) -> None:
        self._bindings = bindings
        self._computation = Computation()
        self._sizes: list[int] = []
        self._directions: dict[str, list[_Direction]] = {}
        for rule in rules:
            self.add_rule(rule)

    def add_rule(self, rule: Rule) -> None:
        """Add a rule to those that are applied."""
        for op, direction in _directions(rule):
            self._directions.setdefault(op, []).append(direction)

    def leads_to(self, old: Expression, new: Expression, depth: int) -> bool:
        """Return whether rules turn one expression into another."""
        start, goal = (
            self._computation.add_expression(side, self._bindings) for side in (old, new)
        )
        most = max(self._size(start), self._size(goal))
        reached, border = {start}, [start]
        for _ in range(depth):
            near = [neighbour for place in border for neighbour in self._neighbours(place)]
            border = [
                place
                for place in dict.fromkeys(near)
                if place not in reached and self._size(place) <= most
            ]
            reached.update(border)
            if goal in reached:
                return True
            if len(reached) > _MOST_STATES:
                return False
        return goal in reached

    def _neighbours(self, place: Ref) -> Iterator[Ref]:
        node = self._computation.steps[place.node]
        for direction in self._directions.get(node.op, ()):
            for plan, refs in direction.plans(self._computation.steps, place):
                with contextlib.suppress(TooLargeError):
                    _, (neighbour,) = plan.follow(refs, self._add)
                    yield neighbour
        for position, operand in enumerate(node.inputs):
            for neighbour in self._neighbours(operand) if operand is not None else ():
                inputs = list(node.inputs)
                inputs[position] = neighbour
                attributes = dict(node.attributes)
                yield self._computation.add(node.op, inputs, attributes, place.output)

    def _add(self, step: Node, inputs: Sequence[Ref | None]) -> Ref:
        if step.value is not None:
            return self._computation.add_constant(step.value)
        return self._computation.add(step.op, inputs, dict(step.attributes))

    def _size(self, place: Ref) -> int:
        """Return the number of operators in an expression; shared ones count each time."""
        for node in self._computation.steps[len(self._sizes) :]:
            below = sum(self._sizes[operand.node] for operand in node.inputs if operand is not None)
            self._sizes.append(below + (node.op not in (INPUT, CONSTANT)))
        return self._sizes[place.node]
