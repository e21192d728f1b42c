"""Equality saturation: hold every graph that rules can make from one graph in a graph of classes.

Applying a rule replaces nothing. The new operations are added beside the matched ones, and their
outputs are declared equal. A class of equal tensors thus stands for every way to compute them, and
the inputs of its members are classes again. When no rule finds anything new, the classes contain
every graph that the rules can reach from the first one.

There is one exception: an operation that was merged from several others is not merged with one of
those again. Such a graph would compute something twice, and saturation would never end.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from environments.tensor_graphs.bound.constants import Constants
from environments.tensor_graphs.graph.graph import Edit, Graph
from environments.tensor_graphs.graph.nodes import INPUT, OPAQUE, Node, Ref, TensorType
from environments.tensor_graphs.rewriting.patterns import Found, Pattern
from environments.tensor_graphs.rewriting.plans import Plan, Planner
from environments.tensor_graphs.rewriting.starts import ascending, orders
from environments.tensor_graphs.rules.language.expressions import Apply, Variable
from environments.tensor_graphs.rules.language.rule import Rule, with_computed_attributes


@dataclasses.dataclass(frozen=True)
class View:
    """A snapshot of the saturation.

    A class is named after one of its members, a constant if it has one.

    Attributes:
      nodes: one operation of each class of operations, by number. Its inputs are names of classes.
      members: the outputs in each class, by the class's name.
      names: the name of each output's class.
      types: the type of each class.
      constants: classes that depend on constants alone.
      merged: the classes that each class was merged from; the class itself if it was not merged.
      users: under (operator, position, class), the classes that have a member of this operator
        with this class as its input at this position. Under (operator, -1, None), the classes that
        have any member of this operator. Constant classes are left out.
    """

    nodes: Mapping[int, Node]
    members: Mapping[Ref, tuple[Ref, ...]]
    names: Mapping[Ref, Ref]
    types: Mapping[Ref, TensorType | None]
    constants: frozenset[Ref]
    merged: Mapping[Ref, frozenset[Ref]]
    users: Mapping[tuple[str, int, Ref | None], list[Ref]]


class Saturation:
    """A graph of classes that grows as rules are applied.

    Attributes:
      is_complete: whether no rule finds anything new.
    """

    def __init__(self, graph: Graph, rules: Sequence[Rule]) -> None:
        """Begin with a graph, whose operations are the first members of the classes."""
        # Whoever asks for no bound need not wait for SciPy.
        from scipy.cluster.hierarchy import DisjointSet

        self.is_complete = False
        opset = getattr(graph.header, "opset", 0)
        self._rules = [_Rule(rule, opset) for rule in rules]
        self._edit: Edit = graph.edit()
        self._nodes: dict[int, Node] = {}
        self._done: set[Any] = set()
        self._constants = Constants()
        self._classes = DisjointSet()
        self._merged: dict[int, frozenset[Ref]] = {}
        for number in graph.order():
            self._add(number)
        self.view = self._look()

    def grow(self, max_nodes: int, deadline_s: float) -> None:
        """Apply all rules, round by round, until they find nothing new.

        Stop at more than `max_nodes` operations, or at the time.monotonic() `deadline_s`.
        """
        while not self.is_complete:
            has_grown = False
            for rule in self._rules:
                for match in rule.matches(self.view):
                    if len(self._nodes) > max_nodes or time.monotonic() > deadline_s:
                        self.view = self._look()
                        return
                    if match.key in self._done:
                        continue
                    self._done.add(match.key)
                    has_grown |= self._apply(match)
            self.is_complete = not has_grown
            self.view = self._look()

    def finish(self) -> tuple[Graph, dict[int, int]]:
        """Return a graph with all operations, and the new number of each of `view.nodes` in it."""
        numbers = {
            number: self._edit.add(
                node.op, node.inputs, node.attributes, node.types, node.value
            ).node
            for number, node in self.view.nodes.items()
        }
        every = [Ref(number, 0) for number in {*self._nodes, *numbers.values()}]
        self._edit.set_outputs(every, [f"{ref.node}" for ref in every])
        return self._edit.finish()[0], numbers

    def _apply(self, match: _Match) -> bool:
        """Apply a match; return whether this declared any new equality."""
        plan = match.plan
        refs = list(match.refs)
        for step in plan.steps:
            inputs = [
                None if place is None else _at(refs, place, plan.num_variables)
                for place in step.inputs
            ]
            ref = self._edit.add(step.op, inputs, step.attributes, step.types, step.value)
            if len(match.replaced) > 1 and ref.node not in self._nodes:
                self._merged[ref.node] = frozenset().union(
                    *(self.view.merged[name] for name in match.replaced)
                )
            self._add(ref.node)
            refs.append(ref)
        is_new = False
        for old, place in zip(match.replaced, plan.results, strict=True):
            new = _at(refs, place, plan.num_variables)
            if self.view.names.get(new) != old:
                self._classes.merge(old, new)
                is_new = True
        return is_new

    def _add(self, number: int) -> None:
        if number not in self._nodes:
            node = self._nodes[number] = self._edit.nodes[number]
            for ref in outputs_of(number, node):
                self._classes.add(ref)
            if self._edit.is_constant(number):
                for ref, twin in self._constants.twins(number, node):
                    self._classes.merge(ref, twin)

    def _firsts(self) -> dict[int, int]:
        """Unite what equal operations give; map each operation to the first that is equal.

        Operations are equal if their operators, attributes and inputs are (congruence).
        """
        while True:
            firsts: dict[int, int] = {}
            first_of: dict[Any, int] = {}
            has_changed = False
            for number, node in self._nodes.items():
                inputs = [None if ref is None else self._classes[ref] for ref in node.inputs]
                first = first_of.setdefault((node.op, node.attributes, *inputs), number)
                firsts[number] = first
                for ref in outputs_of(number, node):
                    has_changed |= self._classes.merge(ref, Ref(first, ref.output))
            if not has_changed:
                return firsts

    def _look(self) -> View:
        firsts = self._firsts()
        members: dict[Ref, list[Ref]] = {}
        for number, node in self._nodes.items():
            for ref in outputs_of(number, node):
                members.setdefault(self._classes[ref], []).append(ref)
        names: dict[Ref, Ref] = {}
        for refs in members.values():
            name = min(refs, key=lambda ref: (not self._edit.is_constant(ref.node), ref))
            names.update(dict.fromkeys(refs, name))
        nodes = {
            number: dataclasses.replace(
                node, inputs=tuple(None if ref is None else names[ref] for ref in node.inputs)
            )
            for number, node in self._nodes.items()
            if firsts[number] == number
        }
        constants = self._constant_classes(names)
        view_members = {
            names[refs[0]]: tuple(ref for ref in sorted(refs) if ref.node in nodes)
            for refs in members.values()
        }
        return View(
            nodes,
            view_members,
            names,
            {name: self._edit.type_of(name) for name in view_members},
            constants,
            {names[refs[0]]: self._merged_from(names, refs) for refs in members.values()},
            _users(nodes, view_members, constants),
        )

    def _merged_from(self, names: Mapping[Ref, Ref], members: Sequence[Ref]) -> frozenset[Ref]:
        first = min(members)
        return frozenset(names[ref] for ref in self._merged.get(first.node, (first,)))

    def _constant_classes(self, names: Mapping[Ref, Ref]) -> frozenset[Ref]:
        """Return the classes with a member that is computed from constants alone."""
        constants: set[Ref] = set()
        while True:
            before = len(constants)
            for number, node in self._nodes.items():
                inputs = [names[ref] for ref in node.inputs if ref is not None]
                if node.op not in (INPUT, OPAQUE) and constants.issuperset(inputs):
                    constants.update(names[ref] for ref in outputs_of(number, node))
            if len(constants) == before:
                return frozenset(constants)


def outputs_of(number: int, node: Node) -> list[Ref]:
    """Return the tensors that an operation gives."""
    return [Ref(number, output) for output in range(len(node.types))]


def _users(
    nodes: Mapping[int, Node], members: Mapping[Ref, Sequence[Ref]], constants: Collection[Ref]
) -> dict[tuple[str, int, Ref | None], list[Ref]]:
    users: dict[tuple[str, int, Ref | None], dict[Ref, None]] = {}
    for name, refs in members.items():
        for node in (nodes[ref.node] for ref in refs if name not in constants):
            users.setdefault((node.op, -1, None), {})[name] = None
            for position, name_of_input in enumerate(node.inputs):
                users.setdefault((node.op, position, name_of_input), {})[name] = None
    return {key: list(names) for key, names in users.items()}


@dataclasses.dataclass(frozen=True)
class _Match:
    key: Any
    refs: tuple[Ref, ...]
    replaced: tuple[Ref, ...]
    plan: Plan


class _Rule:
    """A rule, prepared for matching in classes."""

    def __init__(self, original: Rule, opset: int) -> None:
        rule = with_computed_attributes(original)
        self._name, self._num_variables = rule.name, len(rule.variables)
        self._names = rule.names
        self._opset = opset
        self._ascending = ascending(rule)
        self._planner = Planner(rule)
        self._orders = []
        for source in orders(rule):
            parts = _Parts(rule)
            self._orders.append((parts, [parts.compile(root) for root in source]))

    def matches(self, view: View) -> Iterator[_Match]:
        """Yield every match of the rule."""
        for order, (parts, roots) in enumerate(self._orders):
            empty = Found([None] * len(parts.variables), [None] * len(self._names), [])
            for replaced, bindings in self._roots(view, roots, (), empty):
                match = self._finish(view, order, replaced, bindings)
                if match is not None:
                    yield match

    def _roots(
        self, view: View, roots: Sequence[_Part], taken: tuple[Ref, ...], bindings: Found
    ) -> Iterator[tuple[tuple[Ref, ...], Found]]:
        """Match the remaining expressions of the source, one after another."""
        if len(taken) == len(roots):
            yield taken, bindings
            return
        root = roots[len(taken)]
        for name in root.candidates(view, bindings):
            merged = view.merged[name]
            if not all(merged.isdisjoint(view.merged[other_name]) for other_name in taken):
                continue
            after = (taken[i] for i, j in self._ascending if j == len(taken))
            if any(name < smaller for smaller in after):
                continue
            for here in root.matches(view, name, bindings):
                yield from self._roots(view, roots, (*taken, name), here)

    def _finish(
        self, view: View, order: int, replaced: tuple[Ref, ...], bindings: Found
    ) -> _Match | None:
        refs: tuple[Ref, ...] = tuple(bindings.refs[: self._num_variables])  # type: ignore[arg-type]
        values = tuple(bindings.values)
        plan = self._planner.plan(
            tuple(view.types[ref] for ref in refs),
            tuple(ref in view.constants for ref in refs),
            values,
            self._opset,
        )
        if plan is None or plan.types != tuple(view.types[name] for name in replaced):
            return None
        return _Match((self._name, order, replaced, refs, values), refs, replaced, plan)


@dataclasses.dataclass(frozen=True)
class _Part:
    """One operator of a source; inputs that are operators are its children."""

    pattern: Pattern
    children: tuple[tuple[int, _Part], ...]

    def candidates(self, view: View, bindings: Found) -> list[Ref]:
        """Return classes that may have a matching member; a bound variable narrows them down."""
        for variable, path in self.pattern.paths.items():
            bound = bindings.refs[variable]
            if len(path) == 1 and bound is not None:
                return view.users.get((self.pattern.op, path[0], bound), [])
        return view.users.get((self.pattern.op, -1, None), [])

    def matches(self, view: View, name: Ref, bindings: Found) -> Iterator[Found]:
        """Yield the bindings for each member of the class that matches this part."""
        for ref in view.members[name]:
            if ref.output == self.pattern.output and view.nodes[ref.node].op == self.pattern.op:
                here = bindings.copy()
                if self.pattern.match(view.nodes, ref.node, here):
                    yield from self._descend(view, self.children, here)

    def _descend(
        self, view: View, children: tuple[tuple[int, _Part], ...], bindings: Found
    ) -> Iterator[Found]:
        if not children:
            yield bindings
            return
        (slot, part), *rest = children
        name = bindings.refs[slot]
        assert name is not None
        for here in part.matches(view, name, bindings):
            yield from self._descend(view, tuple(rest), here)


class _Parts:
    """Splits a rule's source into parts: each input that is an operator becomes a variable."""

    def __init__(self, rule: Rule) -> None:
        self.variables = list(rule.variables)
        self._names = rule.names
        self._variables: dict[Apply, str] = {}

    def compile(self, root: Apply) -> _Part:
        inputs: list[Any] = []
        children: list[tuple[int, _Part]] = []
        for operand in root.inputs:
            if not isinstance(operand, Apply):
                inputs.append(operand)
                continue
            name = self._variables.get(operand)
            if name is None:
                name = self._variables[operand] = f"#{len(self.variables)}"
                self.variables.append(name)
                children.append((len(self.variables) - 1, self.compile(operand)))
            inputs.append(Variable(name))
        operator = Apply(root.op, tuple(inputs), root.attributes, root.output)
        return _Part(Pattern(operator, self.variables, self._names), tuple(children))


def _at(refs: Sequence[Ref], place: Ref, num_variables: int) -> Ref:
    ref = refs[place.node]
    return ref if place.node < num_variables else Ref(ref.node, place.output)
