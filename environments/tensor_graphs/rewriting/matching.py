"""Compile rules, find their matches in a graph, and apply them.

Every match can be applied: `apply` does not fail. The types are those that the rule needs, its
conditions and restrictions hold, the new outputs have the types of the old ones, the graph changes,
and no node comes to depend on itself. No rule replaces a node that depends on constants alone,
because such a node costs nothing when the model runs.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.graph import Edit, Graph
from environments.tensor_graphs.graph.nodes import Change, Node, Ref
from environments.tensor_graphs.operators.operator import OperatorError
from environments.tensor_graphs.operators.table import evaluate
from environments.tensor_graphs.rewriting.patterns import Found, Pattern
from environments.tensor_graphs.rewriting.plans import AdmitsFn, Plan, Planner, admits_all
from environments.tensor_graphs.rewriting.starts import Start, ascending, joined, make_start, orders
from environments.tensor_graphs.rules.language.expressions import Apply, Expression, variables
from environments.tensor_graphs.rules.language.rule import Rule, RuleError, with_computed_attributes


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """A place where a rule applies.

    Attributes:
      rule: name of the rule.
      location: what tells this match from the rule's others in the graph: the numbers of the nodes
        that it replaces. If inputs of commutative operators are in another order than the rule
        lists them, the index of that order in `orders(rule)` follows.
      replaced: the values that it replaces, one for each expression of the source.
      refs: the value that each variable stands for.
      values: the value of each attribute that the source names.
      nodes: numbers of the nodes that the source's operators match, ascending, each once.
      plan: the nodes to make.
      needs_check: whether a node may come to depend on itself; the rest of the graph decides that.
        See `is_acyclic`.
      only_removes: see `Rule.only_removes`.
    """

    rule: str
    location: tuple[int, ...]
    replaced: tuple[Ref, ...]
    refs: tuple[Ref, ...]
    values: tuple[Any, ...]
    nodes: tuple[int, ...]
    plan: Plan = dataclasses.field(compare=False, repr=False)
    needs_check: bool = False
    only_removes: bool = dataclasses.field(default=False, compare=False, repr=False)


class CompiledRule:
    """A rule, compiled to find its matches.

    Attributes:
      depth: how many edges below a replaced node a change of the graph can still affect a match.
      starts: the ways to search for matches: one for each order of inputs and each expression.
    """

    def __init__(self, rule: Rule, number: int, admits_fn: AdmitsFn) -> None:
        """Compile a rule.

        Raises:
          RuleError: the rule uses an operator or attribute that does not exist.
        """
        self.rule, self.number = rule, number
        rule = with_computed_attributes(rule)
        self._variables, self._names = rule.variables, rule.names
        self._planner = Planner(rule, admits_fn)
        try:
            sources = [
                tuple(Pattern(root, self._variables, self._names) for root in source)
                for source in orders(rule)
            ]
        except (OperatorError, KeyError) as error:
            raise RuleError(f"rule {rule.name}: {error}") from None
        self._crossings = _crossings(rule)
        depths = [pattern.depth for patterns in sources for pattern in patterns]
        self.depth = max(*depths, *(_depth(target) for target in rule.target))
        pairs = ascending(rule)
        self.starts = [
            make_start(order, patterns, number, pairs)
            for order, patterns in enumerate(sources)
            for number in range(len(patterns))
        ]

    def matches_from(
        self,
        graph: Graph,
        start: Start,
        numbers: tuple[int, ...],
        near: Container[int],
        opset: int = 0,
    ) -> Iterator[Match]:
        """Find the matches of the expression that a start begins with, where its operators are.

        Matches with `needs_check` may still create a cycle. A match of which several roots are
        `near` is found only from the one that comes first in the source.

        Args:
          graph: the graph to search.
          start: one of `starts`.
          numbers: the nodes that are the expression's operators, from the root down.
          near: all nodes that the caller begins at.
          opset: version of ONNX's operators that the graph's model uses.
        """
        if not start.may_match(graph, numbers[0]):
            return
        bound = Found([None] * len(self._variables), [None] * len(self._names), [])
        if not start.pattern.match_below(graph.nodes, numbers, bound):
            return
        wholes: list[tuple[tuple[int, ...], Found]] = [(numbers[:1], bound)]
        for join in start.joins:
            wholes = [more for whole in wholes for more in joined(graph, join, near, *whole)]
        for roots, whole in wholes:
            match = self._finish(graph, start, roots, whole, opset)
            if match is not None:
                yield match

    def _finish(
        self, graph: Graph, start: Start, roots: tuple[int, ...], bound: Found, opset: int
    ) -> Match | None:
        if start.joins:
            roots = tuple(roots[place] for place in start.places)
        nodes = graph.nodes
        refs: tuple[Ref, ...] = tuple(bound.refs)  # type: ignore[arg-type]
        are_constant = tuple(graph.is_constant(ref.node) for ref in refs)
        types = tuple(nodes[ref.node].types[ref.output] for ref in refs)
        values = tuple(bound.values)
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
        # A value that depends on constants alone depends on no replaced node.
        needs_check = any(not are_constant[number] for number in self._crossings)
        return Match(
            self.rule.name,
            (*roots, start.order) if start.order else roots,
            replaced,
            refs,
            values,
            tuple(sorted(set(bound.nodes))),
            plan,
            needs_check,
            self.rule.only_removes,
        )


def is_acyclic(graph: Graph, match: Match) -> bool:
    """Whether a match leaves the graph acyclic; to be asked only of matches with `needs_check`.

    The target of one replaced node may use a value that depends on another replaced node. That is
    fine as long as the targets can be put in an order in which each one depends only on targets
    before it.
    """
    roots = [ref.node for ref in match.replaced]
    mask = _bits(roots)
    below = []
    for used in _used_variables(match.plan):
        behind = 0
        for number in used:
            behind |= _roots_below(graph, match.refs[number].node, roots, mask)
        below.append(behind)
    if not any(below):
        return True
    done, todo = 0, list(range(len(roots)))
    while todo:
        ready = [number for number in todo if not below[number] & ~done]
        if not ready:
            return False
        todo = [number for number in todo if number not in ready]
        # Of several outputs of one node, the first stands for the node.
        done |= _bits(roots[number] for number in ready if roots.index(roots[number]) == number)
    return True


def apply(graph: Graph, match: Match) -> tuple[Graph, Change]:
    """Apply a match; return the graph after it, and what changed."""
    edit = graph.edit()

    def add(step: Node, inputs: Sequence[Ref | None]) -> Ref:
        number = _number(edit, step, inputs)
        if number is not None:
            return edit.add_constant(number)
        return edit.add(step.op, inputs, step.attributes, step.types, step.value)

    built, results = match.plan.follow(match.refs, add)
    replacements = dict(zip(match.replaced, results, strict=True))
    edit.replace(replacements, built={ref.node for ref in built})
    return edit.finish(is_acyclic=True)


def _number(edit: Edit, step: Node, inputs: Sequence[Ref | None]) -> np.ndarray | None:
    """Compute a step whose result is one number and whose inputs are numbers of the model.

    Rules recognise the numbers that a model holds, so those that rules make must be numbers too. It
    is computed in float64 and rounded.

    Returns:
      The number as an array; None if the step gives something else, or no finite number.
    """
    kind = step.types[0]
    if not inputs or len(step.types) != 1 or kind is None or not kind.is_static:
        return None
    if math.prod(kind.shape or ()) != 1:
        return None
    arrays = [None if ref is None else edit.nodes[ref.node].value for ref in inputs]
    if not all(
        array is not None and array.size == 1 and array.dtype.kind == "f" for array in arrays
    ):
        return None
    with np.errstate(all="ignore"):
        wide = [array.astype(np.float64) for array in arrays if array is not None]
        (result,) = evaluate(step.op, wide, step.attributes)
        result = result.astype(kind.dtype)
    return result if np.isfinite(result).all() else None


def compile_rules(
    rules: Sequence[Rule], admits_fn: AdmitsFn = admits_all
) -> tuple[CompiledRule, ...]:
    """Compile rules that are used together.

    Raises:
      RuleError: two rules have the same name, or a rule uses an operator or attribute that does not
        exist.
    """
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise RuleError(f"rule {name}: there are {names.count(name)} of this name")
    return tuple(CompiledRule(rule, number, admits_fn) for number, rule in enumerate(rules))


def _is_any_used(graph: Graph, refs: Sequence[Ref]) -> bool:
    """Whether any of these values is used.

    The only output of a node is always used, because a graph keeps no unused nodes.
    """
    return any(
        len(graph.nodes[ref.node].types) == 1
        or ref in graph.outputs
        or any(ref in graph.nodes[user].inputs for user in graph.users(ref.node))
        for ref in refs
    )


def _depth(expression: Expression | None) -> int:
    if not isinstance(expression, Apply):
        return 0
    return 1 + max((_depth(operand) for operand in expression.inputs), default=0)


def _crossings(rule: Rule) -> tuple[int, ...]:
    """Return the numbers of variables through which replaced nodes may come to form a cycle.

    If a target uses a variable, and one of the source's expressions does not contain it, the value
    of the variable may depend on that expression. A source of one expression has no such variable.
    """
    if len(rule.source) == 1:
        return ()
    order = rule.variables
    of_sources = [variables(source) for source in rule.source]
    crossings = set()
    for target in rule.target:
        for name in variables(target):
            if not all(name in of_source for of_source in of_sources):
                crossings.add(order.index(name))
    return tuple(sorted(crossings))


@functools.lru_cache(maxsize=4096)
def _used_variables(plan: Plan) -> tuple[frozenset[int], ...]:
    """Return, for each result of a plan, the numbers of the variables that it is computed from."""
    used = [frozenset([number]) for number in range(plan.num_variables)]
    for step in plan.steps:
        inputs = (used[place.node] for place in step.inputs if place is not None)
        used.append(frozenset().union(*inputs))
    return tuple(used[place.node] for place in plan.results)


def _roots_below(graph: Graph, node: int, roots: Sequence[int], mask: int) -> int:
    """Return the roots that a node depends on or is, except those behind another root, as bits."""
    below = graph.dependencies(node) & mask
    if not below & (below - 1):
        return below
    among = [root for root in roots if below >> root & 1]
    if all(graph.dependencies(root) & below == 1 << root for root in among):
        return below
    # Only where roots depend on each other, it takes a walk to see which of them is behind.
    reached: set[int] = set()
    seen = {node}
    todo = [node]
    while todo:
        number = todo.pop()
        if number in roots:
            reached.add(number)
            continue
        for used in graph.nodes[number].used:
            if used not in seen:
                seen.add(used)
                todo.append(used)
    return _bits(reached)


def _bits(numbers: Iterable[int]) -> int:
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask
