"""Equality saturation: all that rules can make of a graph, in one graph of classes.

A rule is applied without anything being replaced: what it makes is put beside what it found, and
both are said to be equal. A class of equal tensors so stands for every way to compute them, and its
members' inputs are classes again. When no rule finds anything new, all graphs that these rules can
reach from the first one are contained.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from environments.tensor_graphs.expressions import Apply, Variable
from environments.tensor_graphs.graph import Edit, Graph
from environments.tensor_graphs.matching import with_computed_attributes
from environments.tensor_graphs.nodes import CONSTANT, INPUT, OPAQUE, Node, Ref, TensorType
from environments.tensor_graphs.orders import orders
from environments.tensor_graphs.patterns import Found, Pattern
from environments.tensor_graphs.plans import Plan, Planner
from environments.tensor_graphs.search.egraph import Classes, EGraph
from environments.tensor_graphs.substitutions import Substitution


@dataclasses.dataclass(frozen=True)
class View:
    """A moment of the saturation. A class is named by one of its members, a constant if it can.

    Attributes:
      nodes: one of each class of operations, by number; their inputs are names of classes.
      members: the outputs in a class, by its name.
      names: of the class of each output.
      types: of classes.
      constants: classes that depend on constants alone.
    """

    nodes: Mapping[int, Node]
    members: Mapping[Ref, tuple[Ref, ...]]
    names: Mapping[Ref, Ref]
    types: Mapping[Ref, TensorType | None]
    constants: frozenset[Ref]


class Saturation:
    """Grows a graph of classes.

    Attributes:
      is_complete: whether no rule finds anything new.
      view: how it is now.
    """

    def __init__(self, graph: Graph, rules: Sequence[Substitution]) -> None:
        """Begins with a graph.

        Raises:
          UserError: egglog is not installed.
        """
        self.is_complete = False
        self._rules = [_Rule(rule) for rule in rules]
        self._edit: Edit = graph.edit()
        self._egraph = EGraph()
        self._known: dict[int, Node] = {}
        self._done: set[Any] = set()
        for number in graph.order():
            self._add(number)
        self.view = self._look()

    def grow(self, max_nodes: int, deadline_s: float) -> None:
        """Applies all rules, round by round, until nothing is new.

        Args:
          max_nodes: more operations end it.
          deadline_s: time.monotonic() that ends it.
        """
        while not self.is_complete:
            found_any = False
            for rule in self._rules:
                for found in list(rule.matches(self.view)):
                    if found.key in self._done:
                        continue
                    if len(self._known) > max_nodes or time.monotonic() > deadline_s:
                        self.view = self._look()
                        return
                    self._done.add(found.key)
                    found_any |= self._apply(found)
            self.is_complete = not found_any
            self.view = self._look()

    def finish(self) -> tuple[Graph, dict[int, int]]:
        """A graph with all operations, and the number in it of each of `view.nodes`."""
        numbers = {
            number: self._edit.add(
                node.op, node.inputs, node.attributes, node.types, node.value
            ).node
            for number, node in self.view.nodes.items()
        }
        every = [Ref(number, 0) for number in {*self._known, *numbers.values()}]
        self._edit.set_outputs(every, [f"{ref.node}" for ref in every])
        return self._edit.finish()[0], numbers

    def _apply(self, found: _Match) -> bool:
        """Whether it made anything that was not there, or not known to be equal."""
        plan = found.plan
        made = list(found.refs)
        for step in plan.steps:
            inputs = [
                None if place is None else _at(made, place, plan.num_variables)
                for place in step.inputs
            ]
            ref = self._edit.add(step.op, inputs, step.attributes, step.types, step.value)
            self._add(ref.node)
            made.append(ref)
        is_new = False
        for old, place in zip(found.replaced, plan.results, strict=True):
            new = _at(made, place, plan.num_variables)
            if self.view.names.get(new) != old:
                self._egraph.union(old, new)
                is_new = True
        return is_new

    def _add(self, number: int) -> None:
        if number not in self._known:
            self._known[number] = self._edit.node(number)
            self._egraph.add(number, self._known[number])

    def _look(self) -> View:
        classes = self._egraph.classes()
        members: dict[str, list[Ref]] = {}
        for ref, name in classes.tensors.items():
            members.setdefault(name, []).append(ref)
        constants = self._constants(classes)
        names_of = {
            name: min(refs, key=lambda ref: (not self._edit.is_constant(ref.node), ref))
            for name, refs in members.items()
        }
        names = {ref: names_of[name] for ref, name in classes.tensors.items()}
        nodes: dict[int, Node] = {}
        first: dict[str, int] = {}
        for number, node in self._known.items():
            if first.setdefault(classes.operations[number], number) == number:
                inputs = tuple(None if ref is None else names[ref] for ref in node.inputs)
                nodes[number] = dataclasses.replace(node, inputs=inputs)
        return View(
            nodes,
            {
                names_of[name]: tuple(ref for ref in sorted(refs) if ref.node in nodes)
                for name, refs in members.items()
            },
            names,
            {one: self._edit.type_of(one) for one in names_of.values()},
            frozenset(names_of[name] for name in constants),
        )

    def _constants(self, classes: Classes) -> set[str]:
        """Classes with a member that is computed of constants alone."""
        found: set[str] = set()
        while True:
            before = len(found)
            for number, node in self._known.items():
                if node.op in (INPUT, OPAQUE):
                    continue
                given = [classes.tensors[ref] for ref in node.inputs if ref is not None]
                if node.op == CONSTANT or all(one in found for one in given):
                    found.update(classes.tensors[Ref(number, k)] for k in range(len(node.types)))
            if len(found) == before:
                return found


@dataclasses.dataclass(frozen=True)
class _Match:
    key: Any
    refs: tuple[Ref, ...]
    replaced: tuple[Ref, ...]
    plan: Plan


class _Rule:
    """A rule that is looked for in classes."""

    def __init__(self, substitution: Substitution) -> None:
        rule = with_computed_attributes(substitution)
        self._name, self._num_variables = rule.name, len(rule.variables)
        self._names = rule.names
        self._planner = Planner(rule)
        self._orders = []
        for source in orders(rule):
            parts = _Parts(rule)
            self._orders.append((parts, [parts.compile(root) for root in source]))

    def matches(self, view: View) -> Iterator[_Match]:
        """All of them."""
        for order, (parts, roots) in enumerate(self._orders):
            empty = Found([None] * len(parts.variables), [None] * len(self._names), [])
            for replaced, found in self._roots(view, roots, empty):
                match = self._finish(view, order, replaced, found)
                if match is not None:
                    yield match

    def _roots(
        self, view: View, roots: Sequence[_Part], found: Found
    ) -> Iterator[tuple[tuple[Ref, ...], Found]]:
        if not roots:
            yield (), found
            return
        root, *rest = roots
        for name in view.members:
            if name in view.constants:
                continue
            for here in root.matches(view, name, found):
                for others, whole in self._roots(view, rest, here):
                    if name not in others:
                        yield (name, *others), whole

    def _finish(
        self, view: View, order: int, replaced: tuple[Ref, ...], found: Found
    ) -> _Match | None:
        refs: tuple[Ref, ...] = tuple(found.refs[: self._num_variables])  # type: ignore[arg-type]
        values = tuple(found.values)
        plan = self._planner.plan(
            tuple(view.types[ref] for ref in refs),
            tuple(ref in view.constants for ref in refs),
            values,
        )
        if plan is None or plan.types != tuple(view.types[one] for one in replaced):
            return None
        return _Match((self._name, order, replaced, refs, values), refs, replaced, plan)


@dataclasses.dataclass(frozen=True)
class _Part:
    """One operator of a source; its inputs that are operators are parts again."""

    pattern: Pattern
    children: tuple[tuple[int, _Part], ...]

    def matches(self, view: View, name: Ref, found: Found) -> Iterator[Found]:
        """What is bound where a member of the class is this part."""
        for ref in view.members[name]:
            if ref.output == self.pattern.output and view.nodes[ref.node].op == self.pattern.op:
                here = found.copy()
                if self.pattern.match(view.nodes, ref.node, here):
                    yield from self._descend(view, self.children, here)

    def _descend(
        self, view: View, children: tuple[tuple[int, _Part], ...], found: Found
    ) -> Iterator[Found]:
        if not children:
            yield found
            return
        (slot, part), *rest = children
        name = found.refs[slot]
        assert name is not None
        for here in part.matches(view, name, found):
            yield from self._descend(view, tuple(rest), here)


class _Parts:
    """Takes sources apart: an input that is an operator becomes a variable of its own."""

    def __init__(self, rule: Substitution) -> None:
        self.variables = list(rule.variables)
        self._names = rule.names
        self._known: dict[Apply, str] = {}

    def compile(self, root: Apply) -> _Part:
        inputs: list[Any] = []
        children: list[tuple[int, _Part]] = []
        for given in root.inputs:
            if not isinstance(given, Apply):
                inputs.append(given)
                continue
            name = self._known.get(given)
            if name is None:
                name = self._known[given] = f"#{len(self.variables)}"
                self.variables.append(name)
                children.append((len(self.variables) - 1, self.compile(given)))
            inputs.append(Variable(name))
        one = Apply(root.op, tuple(inputs), root.attributes, root.output)
        return _Part(Pattern(one, self.variables, self._names), tuple(children))


def _at(made: Sequence[Ref], place: Any, num_variables: int) -> Ref:
    ref = made[place.number]
    return ref if place.number < num_variables else Ref(ref.node, place.output)
