"""Computations on tensors of known shapes, which can be run with any algebra."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import Attributes, TensorType
from environments.tensor_graphs.operators import table
from environments.tensor_graphs.operators.operator import FLOAT_TYPES, num_elements
from environments.tensor_graphs.rules.language import terms
from environments.tensor_graphs.rules.language.expressions import Array, Expression, Variable
from environments.tensor_graphs.rules.language.terms import Bindings

MAX_ELEMENTS = 20_000
"""Larger tensors would take too long."""


class TooLargeError(ValueError):
    """A tensor would have more than MAX_ELEMENTS elements."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation, given tensor or constant.

    Attributes:
      op: name of the operator; empty for given tensors and constants.
      inputs: pairs (step, output); None for each input that is left out.
      attributes: attributes in their canonical form.
      types: types of the outputs.
      name: name of a given tensor; else empty.
      value: array of a constant; else None.
    """

    op: str
    inputs: tuple[tuple[int, int] | None, ...]
    attributes: Attributes
    types: tuple[TensorType, ...]
    name: str = ""
    value: np.ndarray | None = None


class Computation:
    """Steps, each after those that it needs; equal steps are stored once."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._known: dict[Any, int] = {}

    def type_of(self, place: tuple[int, int]) -> TensorType:
        """Return the type of an output of a step."""
        return self.steps[place[0]].types[place[1]]

    def add_given(self, name: str, tensor: TensorType) -> tuple[int, int]:
        """Add a tensor that the caller of `run` gives by this name; return its place."""
        number = self._known.get((name, tensor))
        if number is None:
            number = self._add((name, tensor), Step("", (), (), (tensor,), name))
        return number, 0

    def add_constant(self, value: np.ndarray) -> tuple[int, int]:
        """Add a constant; return its place."""
        tensor = TensorType(value.dtype.name, value.shape)
        key = ("constant", tensor, value.tobytes())
        return self._add(key, Step("", (), (), (tensor,), "", value)), 0

    def add(
        self,
        op: str,
        inputs: Sequence[tuple[int, int] | None],
        values: Mapping[str, Any],
        output: int = 0,
    ) -> tuple[int, int]:
        """Add an operation.

        Args:
          op: name of the operator.
          inputs: places of the inputs; None for each that is left out.
          values: attributes by name; the others get their defaults.
          output: index of the output that is wanted.

        Returns:
          The place of that output: (step, output).

        Raises:
          OperatorError: the inputs or attributes do not fit the operator.
          TooLargeError: the result is too large.
        """
        types = [None if place is None else self.type_of(place) for place in inputs]
        attributes = table.complete(op, values, types)
        key = (op, tuple(inputs), attributes)
        number = self._known.get(key)
        if number is None:
            outputs = table.infer(op, types, attributes)
            if sum(num_elements(tensor) for tensor in outputs) > MAX_ELEMENTS:
                raise TooLargeError(op)
            number = self._add(key, Step(op, tuple(inputs), attributes, tuple(outputs)))
        if output >= len(self.steps[number].types):
            raise table.OperatorError(f"{op} has no output {output}")
        return number, output

    def run(self, tensors: Mapping[str, np.ndarray], algebra: Any) -> list[tuple[np.ndarray, ...]]:
        """Compute the values of all steps.

        Args:
          tensors: arrays of the given tensors, by name.
          algebra: the algebra to compute with. Constants of floating-point types are converted to
            its numbers.

        Returns:
          For each step, the arrays of its outputs.
        """
        values: list[tuple[np.ndarray, ...]] = []
        for step in self.steps:
            if step.op:
                arrays = [values[place[0]][place[1]] for place in step.inputs if place is not None]
                values.append(tuple(table.evaluate(step.op, arrays, step.attributes, algebra)))
            elif step.value is None:
                values.append((tensors[step.name],))
            else:
                is_number = step.types[0].dtype in FLOAT_TYPES and hasattr(algebra, "embed")
                values.append((algebra.embed(step.value) if is_number else step.value,))
        return values

    def only(self, places: Sequence[tuple[int, int]]) -> tuple[Computation, list[tuple[int, int]]]:
        """Return a computation with only the steps that some outputs need, and their new places."""
        needed = {place[0] for place in places}
        for number in range(len(self.steps) - 1, -1, -1):
            if number in needed:
                needed.update(place[0] for place in self.steps[number].inputs if place is not None)
        moved = {old: new for new, old in enumerate(sorted(needed))}
        result = Computation()
        for number in moved:
            step = self.steps[number]
            inputs = tuple([place and (moved[place[0]], place[1]) for place in step.inputs])
            if inputs != step.inputs:
                step = Step(step.op, inputs, step.attributes, step.types, step.name, step.value)
            result.steps.append(step)
        return result, [(moved[number], output) for number, output in places]

    def _add(self, key: Any, step: Step) -> int:
        number = self._known.setdefault(key, len(self.steps))
        if number == len(self.steps):
            self.steps.append(step)
        return number


def add_expression(
    computation: Computation, expression: Expression, bindings: Bindings
) -> tuple[int, int]:
    """Add the steps of an expression whose attributes all have values; return its place.

    Raises:
      TermError: an attribute has no value.
      OperatorError: the inputs or attributes of an operator do not fit.
      TooLargeError: a tensor is too large.
    """
    if isinstance(expression, Variable):
        return computation.add_given(expression.name, bindings.types[expression.name])
    if isinstance(expression, Array):
        return computation.add_constant(terms.make_array(expression, bindings))
    inputs = [
        None if operand is None else add_expression(computation, operand, bindings)
        for operand in expression.inputs
    ]
    values = {
        name: terms.as_attribute(terms.evaluate(term, bindings))
        for name, term in expression.attributes
    }
    return computation.add(expression.op, inputs, values, expression.output)
