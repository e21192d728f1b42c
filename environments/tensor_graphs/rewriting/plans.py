"""Work out which nodes a rule makes for tensors of given types.

The layers of a model repeat each other, so the same types come up again and again. A planner works
out a plan once for each combination of types, or once that the rule does not apply, and caches it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from environments.tensor_graphs.graph.nodes import Attribute, Node, Ref, TensorType
from environments.tensor_graphs.operators.operator import OperatorError
from environments.tensor_graphs.rules.language.computations import Computation
from environments.tensor_graphs.rules.language.rule import Rule, group_of, special_types
from environments.tensor_graphs.rules.language.terms import Bindings, TermError, holds

AdmitsFn = Callable[[str, Sequence[TensorType | None], int], bool]
"""Returns whether an operator may be made, for the types of its inputs and a version of opset."""


_MAX_KNOWN = 1 << 12


def admits_all(op: str, inputs: Sequence[TensorType | None], opset: int) -> bool:
    """Admit all operators; see `AdmitsFn`."""
    return True


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """The nodes that a rule makes for tensors of certain types. Plans compare by identity.

    Attributes:
      num_variables: number of the rule's variables.
      steps: the nodes to make, each after those that it uses. Their inputs are numbered so: first
        the variables, then the steps.
      results: what replaces each expression of the source, numbered likewise.
      types: types of the results.
    """

    num_variables: int
    steps: tuple[Node, ...]
    results: tuple[Ref, ...]
    types: tuple[TensorType | None, ...]

    def follow(
        self, refs: Sequence[Ref], add_fn: Callable[[Node, Sequence[Ref | None]], Ref]
    ) -> tuple[list[Ref], list[Ref]]:
        """Make the nodes.

        Returns:
          The first outputs of the nodes that were made, and the results.
        """
        values = list(refs)

        def ref(place: Ref) -> Ref:
            first = values[place.node]
            return first if place.node < self.num_variables else Ref(first.node, place.output)

        for step in self.steps:
            inputs = [None if place is None else ref(place) for place in step.inputs]
            values.append(add_fn(step, inputs))
        return values[self.num_variables :], [ref(place) for place in self.results]

    def changes_nothing(
        self, nodes: Mapping[int, Node], refs: Sequence[Ref], replaced: Sequence[Ref]
    ) -> bool:
        """Whether the graph would stay the same, because each result equals what it replaces.

        `refs` are the values that the variables stand for, `replaced` those to be replaced.
        """
        return all(
            self._is_there(nodes, refs, place, ref)
            for place, ref in zip(self.results, replaced, strict=True)
        )

    def _is_there(
        self, nodes: Mapping[int, Node], refs: Sequence[Ref], place: Ref | None, ref: Ref | None
    ) -> bool:
        if place is None or ref is None:
            return place is None and ref is None
        if place.node < self.num_variables:
            return refs[place.node] == ref
        step, node = self.steps[place.node - self.num_variables], nodes[ref.node]
        return (
            step.op == node.op
            and place.output == ref.output
            and step.attributes == node.attributes
            and len(step.inputs) == len(node.inputs)
            and all(
                self._is_there(nodes, refs, origin, target)
                for origin, target in zip(step.inputs, node.inputs, strict=True)
            )
        )


class Planner:
    """Makes and caches the plans of one rule."""

    def __init__(self, rule: Rule, admits_fn: AdmitsFn = admits_all) -> None:
        """Begin with an empty cache."""
        self._rule = rule
        self._admits_fn = admits_fn
        self._variables, self._names = rule.variables, rule.names
        special = special_types(rule.source)
        self._ordinary = [name for name in self._variables if name not in special]
        self._known: dict[object, Plan | None] = {}

    def plan(
        self,
        types: tuple[TensorType | None, ...],
        are_constant: tuple[bool, ...],
        values: tuple[Attribute, ...],
        opset: int = 0,
    ) -> Plan | None:
        """Return the plan for some variables; None if the rule does not apply to them.

        A rule does not apply if it is not right for the element types of these variables, if one of
        its conditions or restrictions does not hold, or if its target is not valid for these types.

        Args:
          types: types of the variables; None for one that is no tensor.
          are_constant: for each variable, whether it depends on constants alone.
          values: values of the attributes that the source names.
          opset: opset version of the model.
        """
        key = types, are_constant, values, opset
        try:
            return self._known[key]
        except KeyError:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            plan = self._known[key] = self._make(*key)
            return plan

    def _make(
        self,
        types: tuple[TensorType | None, ...],
        are_constant: tuple[bool, ...],
        values: tuple[Attribute, ...],
        opset: int,
    ) -> Plan | None:
        named = dict(zip(self._variables, types, strict=True))
        tensors = {name: tensor for name, tensor in named.items() if tensor is not None}
        groups = {group_of(tensors[name].dtype) for name in self._ordinary if name in tensors}
        if not groups.issubset(self._rule.types):
            return None
        constants = set(itertools.compress(self._variables, are_constant))
        bindings = Bindings(tensors, dict(zip(self._names, values, strict=True)), constants, opset)
        terms = (*self._rule.conditions, *self._rule.restrictions)
        if not all(holds(term, bindings) for term in terms):
            return None
        try:
            computation = Computation(math.inf)
            for name, tensor in named.items():
                computation.add_input(name, tensor)
            results = [computation.add_expression(root, bindings) for root in self._rule.target]
        except (TermError, OperatorError):
            return None
        if not self._is_admitted(computation, are_constant, opset):
            return None
        steps = tuple(computation.steps[len(types) :])
        return Plan(len(types), steps, tuple(results), tuple(map(computation.type_of, results)))

    def _is_admitted(
        self, computation: Computation, are_constant: Sequence[bool], opset: int
    ) -> bool:
        """Return whether all nodes may be made that are computed when the model runs."""
        constant = list(are_constant)
        for step in computation.steps[len(constant) :]:
            is_constant = all(constant[number] for number in step.used)
            constant.append(is_constant)
            inputs = [None if ref is None else computation.type_of(ref) for ref in step.inputs]
            if not is_constant and not self._admits_fn(step.op, inputs, opset):
                return False
        return True
