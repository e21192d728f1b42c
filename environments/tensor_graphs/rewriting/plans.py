"""Work out which nodes a rule makes for tensors of given types.

The layers of a model repeat each other, so the same types come up again and again. A planner works
out a plan once for each combination of types, or once that the rule does not apply, and caches it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from environments.tensor_graphs.graph.nodes import (
    CONSTANT,
    Attribute,
    Attributes,
    Node,
    Ref,
    TensorType,
)
from environments.tensor_graphs.operators.operator import OperatorError
from environments.tensor_graphs.operators.table import complete, infer
from environments.tensor_graphs.rules.language.element_types import group_of, special_types
from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Expression,
    Variable,
    fold,
)
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.language.terms import (
    Bindings,
    TermError,
    as_attribute,
    evaluate,
    holds,
    make_array,
)

AdmitsFn = Callable[[str, Sequence[TensorType | None], int], bool]
"""Returns whether an operator may be made, for the types of its inputs and a version of opset."""


def admits_all(op: str, inputs: Sequence[TensorType | None], opset: int) -> bool:
    """Admit all operators; see `AdmitsFn`."""
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where an input comes from: a variable, or the output of a step.

    Attributes:
      number: number of the variable; or the number of variables plus the index of the step.
      output: index of the step's output; 0 for a variable.
    """

    number: int
    output: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A node to make.

    The fields are the arguments of `Edit.add`, except that the inputs are places.
    """

    op: str
    inputs: tuple[Place | None, ...]
    attributes: Attributes
    types: tuple[TensorType | None, ...]
    value: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """The nodes that a rule makes for tensors of certain types. Plans compare by identity.

    Attributes:
      num_variables: number of the rule's variables.
      steps: the nodes to make, each after those that it uses.
      results: what replaces each expression of the source.
      types: types of the results.
    """

    num_variables: int
    steps: tuple[Step, ...]
    results: tuple[Place, ...]
    types: tuple[TensorType | None, ...]

    def follow(
        self, refs: Sequence[Ref], add_fn: Callable[[Step, Sequence[Ref | None]], Ref]
    ) -> tuple[list[Ref], list[Ref]]:
        """Make the nodes.

        Returns:
          The first outputs of the nodes that were made, and the results.
        """
        values = list(refs)

        def ref(place: Place) -> Ref:
            first = values[place.number]
            return first if place.number < self.num_variables else Ref(first.node, place.output)

        for step in self.steps:
            inputs = [None if place is None else ref(place) for place in step.inputs]
            values.append(add_fn(step, inputs))
        return values[self.num_variables :], [ref(place) for place in self.results]

    def changes_nothing(
        self, nodes: Mapping[int, Node], refs: Sequence[Ref], replaced: Sequence[Ref]
    ) -> bool:
        """Whether the graph would stay the same, because each result equals what it replaces.

        Args:
          nodes: the graph's nodes, by number.
          refs: the value that each variable stands for.
          replaced: the values to be replaced, one for each result.
        """
        return all(
            self._is_there(nodes, refs, place, ref)
            for place, ref in zip(self.results, replaced, strict=True)
        )

    def _is_there(
        self, nodes: Mapping[int, Node], refs: Sequence[Ref], place: Place | None, ref: Ref | None
    ) -> bool:
        if place is None or ref is None:
            return place is None and ref is None
        if place.number < self.num_variables:
            return refs[place.number] == ref
        step, node = self.steps[place.number - self.num_variables], nodes[ref.node]
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

    def __init__(
        self, rule: Rule, admits_fn: AdmitsFn = admits_all, max_known: int = 1 << 12
    ) -> None:
        """Begin with an empty cache."""
        self._rule = rule
        self._admits_fn = admits_fn
        self._variables, self._names = rule.variables, rule.names
        special = special_types(rule.source)
        self._ordinary = [name for name in self._variables if name not in special]
        self._known: dict[object, Plan | None] = {}
        self._max_known = max_known

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
            if len(self._known) >= self._max_known:
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
        tensors = {
            n: tensor
            for n, tensor in zip(self._variables, types, strict=True)
            if tensor is not None
        }
        groups = {group_of(tensors[name].dtype) for name in self._ordinary if name in tensors}
        if not groups.issubset(self._rule.types):
            return None
        constants = {
            n for n, is_constant in zip(self._variables, are_constant, strict=True) if is_constant
        }
        bindings = Bindings(tensors, dict(zip(self._names, values, strict=True)), constants, opset)
        if not all(holds(condition, bindings) for condition in self._rule.conditions):
            return None
        if not all(holds(restriction, bindings) for restriction in self._rule.restrictions):
            return None
        try:
            plan = _Making(self._variables, types, bindings).plan(self._rule.target)
        except (TermError, OperatorError):
            return None
        return plan if self._is_admitted(plan, types, are_constant, opset) else None

    def _is_admitted(
        self,
        plan: Plan,
        types: Sequence[TensorType | None],
        are_constant: Sequence[bool],
        opset: int,
    ) -> bool:
        """Return whether all nodes may be made that are computed when the model runs."""
        outputs: list[tuple[TensorType | None, ...]] = [(tensor,) for tensor in types]
        constant = list(are_constant)
        for step in plan.steps:
            places = [place for place in step.inputs if place is not None]
            is_constant = all(constant[place.number] for place in places)
            inputs = [
                None if place is None else outputs[place.number][place.output]
                for place in step.inputs
            ]
            if not is_constant and not self._admits_fn(step.op, inputs, opset):
                return False
            outputs.append(step.types)
            constant.append(is_constant)
        return True


class _Making:
    """A plan that is being made: walks over the target's expressions and collects steps."""

    def __init__(
        self,
        variables: tuple[str, ...],
        types: tuple[TensorType | None, ...],
        bindings: Bindings,
    ) -> None:
        self._numbers = {name: number for number, name in enumerate(variables)}
        self._types: list[tuple[TensorType | None, ...]] = [(tensor,) for tensor in types]
        self._bindings = bindings
        self._steps: list[Step] = []
        self._known: dict[object, int] = {}

    def plan(self, target: tuple[Expression, ...]) -> Plan:
        done: dict[Expression, Place] = {}
        results = tuple(
            fold(root, self._variable, self._array, self._apply, done) for root in target
        )
        types = tuple(self._types[place.number][place.output] for place in results)
        return Plan(len(self._numbers), tuple(self._steps), results, types)

    def _variable(self, variable: Variable) -> Place:
        return Place(self._numbers[variable.name])

    def _array(self, array: Array) -> Place:
        value = make_array(array, self._bindings)
        digest = hashlib.sha256(f"{value.dtype.name}{value.shape}".encode())
        digest.update(value.tobytes())
        attributes = (("digest", digest.hexdigest()),)
        kind = TensorType(value.dtype.name, value.shape)
        return Place(self._step(Step(CONSTANT, (), attributes, (kind,), value)))

    def _apply(self, applied: Apply, inputs: tuple[Place | None, ...]) -> Place:
        tensors = tuple(
            None if place is None else self._types[place.number][place.output] for place in inputs
        )
        values = {
            name: as_attribute(evaluate(value, self._bindings))
            for name, value in applied.attributes
        }
        attributes = complete(applied.op, values, tensors)
        types = infer(applied.op, tensors, attributes)
        if applied.output >= len(types):
            raise OperatorError(f"{applied.op} has {len(types)} outputs")
        number = self._step(Step(applied.op, inputs, attributes, types))
        return Place(number, applied.output)

    def _step(self, step: Step) -> int:
        key = step.op, step.inputs, step.attributes
        if key not in self._known:
            self._known[key] = len(self._types)
            self._types.append(step.types)
            self._steps.append(step)
        return self._known[key]
