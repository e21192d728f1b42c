"""Targets of rules, worked out for given types: which nodes are to be made.

Layers of a model repeat each other. What a rule makes of tensors of given types, or that it has no
right to make anything of them, is worked out once.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence

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


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where an input comes from.

    Attributes:
      number: of a variable, or, less the number of variables, of a step.
      output: of the step.
    """

    number: int
    output: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A node to be made: the arguments of `Edit.add`, but for the inputs."""

    op: str
    inputs: tuple[Place | None, ...]
    attributes: Attributes
    types: tuple[TensorType | None, ...]
    value: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """What a rule makes of tensors of some types. Each plan is equal to itself alone.

    Attributes:
      num_variables: of the rule.
      steps: each after those that it uses.
      results: what replaces the source's expressions.
      types: of the results.
    """

    num_variables: int
    steps: tuple[Step, ...]
    results: tuple[Place, ...]
    types: tuple[TensorType | None, ...]

    def changes_nothing(
        self, nodes: Mapping[int, Node], refs: Sequence[Ref], replaced: Sequence[Ref]
    ) -> bool:
        """Whether all that would be made is what is replaced."""
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
                self._is_there(nodes, refs, one, other)
                for one, other in zip(step.inputs, node.inputs, strict=True)
            )
        )


class Planner:
    """Makes plans of one rule."""

    def __init__(self, rule: Rule, max_known: int = 1 << 12) -> None:
        """Begins with none.

        Args:
          rule: the rule.
          max_known: how many answers are kept.
        """
        self._rule = rule
        self._variables, self._names = rule.variables, rule.names
        self._known: dict[object, Plan | None] = {}
        self._max_known = max_known

    def plan(
        self,
        types: tuple[TensorType | None, ...],
        are_constant: tuple[bool, ...],
        values: tuple[Attribute, ...],
        opset: int = 0,
    ) -> Plan | None:
        """What to make; None if the rule does not hold there, or is not to be tried.

        Args:
          types: of the variables.
          are_constant: whether they depend on constants alone.
          values: of the rule's attributes.
          opset: of the model.
        """
        key = types, are_constant, values, opset
        try:
            return self._known[key]
        except KeyError:
            if len(self._known) >= self._max_known:
                self._known.clear()
            found = self._known[key] = self._make(*key)
            return found

    def _make(
        self,
        types: tuple[TensorType | None, ...],
        are_constant: tuple[bool, ...],
        values: tuple[Attribute, ...],
        opset: int,
    ) -> Plan | None:
        known = {n: one for n, one in zip(self._variables, types, strict=True) if one is not None}
        constants = {n for n, one in zip(self._variables, are_constant, strict=True) if one}
        bindings = Bindings(known, dict(zip(self._names, values, strict=True)), constants, opset)
        if not all(holds(one, bindings) for one in self._rule.conditions):
            return None
        if not all(holds(one, bindings) for one in self._rule.restrictions):
            return None
        try:
            return _Making(self._variables, types, bindings).plan(self._rule.target)
        except (TermError, OperatorError):
            return None


class _Making:
    """One plan in the making."""

    def __init__(
        self,
        variables: tuple[str, ...],
        types: tuple[TensorType | None, ...],
        bindings: Bindings,
    ) -> None:
        self._numbers = {name: number for number, name in enumerate(variables)}
        self._types: list[tuple[TensorType | None, ...]] = [(one,) for one in types]
        self._bindings = bindings
        self._steps: list[Step] = []
        self._known: dict[object, int] = {}

    def plan(self, target: tuple[Expression, ...]) -> Plan:
        done: dict[Expression, Place] = {}
        results = tuple(fold(one, self._variable, self._array, self._apply, done) for one in target)
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
        given = tuple(
            None if one is None else self._types[one.number][one.output] for one in inputs
        )
        values = {
            name: as_attribute(evaluate(value, self._bindings))
            for name, value in applied.attributes
        }
        attributes = complete(applied.op, values, given)
        types = infer(applied.op, given, attributes)
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
