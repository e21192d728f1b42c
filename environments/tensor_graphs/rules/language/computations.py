"""Computations on tensors of certain types, which can be run with any algebra."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import CONSTANT, INPUT, Node, Ref, TensorType
from environments.tensor_graphs.operators import table
from environments.tensor_graphs.operators.operator import FLOAT_TYPES, num_elements
from environments.tensor_graphs.rules.language.expressions import Array, Expression, Variable
from environments.tensor_graphs.rules.language.terms import (
    Bindings,
    as_attribute,
    evaluate,
    make_array,
)

MAX_ELEMENTS = 20_000
"""Larger tensors would take too long to compute."""


class TooLargeError(ValueError):
    """A tensor would have too many elements."""


class Computation:
    """Nodes, each after those that it uses; equal nodes are stored once.

    Args:
      max_elements: the most elements that the outputs of a node may have.

    Attributes:
      steps: the nodes; references to them count from the first.
    """

    def __init__(self, max_elements: float = MAX_ELEMENTS) -> None:
        self.steps: list[Node] = []
        self._max_elements = max_elements
        self._numbers: dict[Any, int] = {}

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Types of the tensors that `run` must be given, by name."""
        return {input_name(step): step.types[0] for step in self.steps if step.op == INPUT}  # type: ignore[misc]

    def type_of(self, ref: Ref) -> TensorType | None:
        """Return the type of an output of a step."""
        return self.steps[ref.node].types[ref.output]

    def add_input(self, name: str, tensor: TensorType | None) -> Ref:
        """Add a tensor that the caller of `run` gives by this name."""
        number = self._numbers.get((name, tensor))
        if number is not None:
            return Ref(number)
        return self._add((name, tensor), Node(INPUT, (), (("name", name),), (tensor,)))

    def add_constant(self, value: np.ndarray) -> Ref:
        """Add a constant."""
        digest = hashlib.sha256(f"{value.dtype.name}{value.shape}".encode())
        digest.update(value.tobytes())
        tensor = TensorType(value.dtype.name, value.shape)
        node = Node(CONSTANT, (), (("digest", digest.hexdigest()),), (tensor,), value)
        return self._add(node.key, node)

    def add(
        self, op: str, inputs: Sequence[Ref | None], values: Mapping[str, Any], output: int = 0
    ) -> Ref:
        """Add an operation and return one of its outputs.

        Args:
          op: name of the operator.
          inputs: its inputs; None for each that is left out.
          values: attributes by name; the others get their defaults.
          output: index of the output to return.

        Raises:
          OperatorError: the inputs or attributes do not fit the operator.
          TooLargeError: the result is too large.
        """
        types = [None if ref is None else self.type_of(ref) for ref in inputs]
        attributes = table.complete(op, values, types)
        key = op, attributes, tuple(inputs)
        number = self._numbers.get(key)
        if number is None:
            outputs = table.infer(op, types, attributes)
            if sum(map(num_elements, outputs)) > self._max_elements:
                raise TooLargeError(op)
            number = self._add(key, Node(op, key[2], attributes, outputs)).node
        if output >= len(self.steps[number].types):
            raise table.OperatorError(f"{op} has no output {output}")
        return Ref(number, output)

    def add_expression(self, expression: Expression, bindings: Bindings) -> Ref:
        """Add the steps of an expression whose attributes all have values.

        Raises:
          TermError: an attribute has no value.
          OperatorError: the inputs or attributes of an operator do not fit.
          TooLargeError: a tensor is too large.
        """
        if isinstance(expression, Variable):
            return self.add_input(expression.name, bindings.types.get(expression.name))
        if isinstance(expression, Array):
            return self.add_constant(make_array(expression, bindings))
        inputs = [
            None if operand is None else self.add_expression(operand, bindings)
            for operand in expression.inputs
        ]
        values = {
            name: as_attribute(evaluate(term, bindings)) for name, term in expression.attributes
        }
        return self.add(expression.op, inputs, values, expression.output)

    def run(self, tensors: Mapping[str, np.ndarray], algebra: Any) -> list[tuple[np.ndarray, ...]]:
        """Compute the outputs of all steps with an algebra, from the arrays of the inputs by name.

        Constants of floating-point types are converted to the algebra's numbers. NumPy does not
        warn of overflow, or of what has no value.
        """
        values: list[tuple[np.ndarray, ...]] = []
        with np.errstate(all="ignore"):
            for step in self.steps:
                if step.op == INPUT:
                    values.append((tensors[input_name(step)],))
                elif step.value is not None:
                    is_number = step.value.dtype.name in FLOAT_TYPES and hasattr(algebra, "embed")
                    values.append((algebra.embed(step.value) if is_number else step.value,))
                else:
                    arrays = [
                        values[ref.node][ref.output] for ref in step.inputs if ref is not None
                    ]
                    values.append(table.evaluate(step.op, arrays, step.attributes, algebra))
        return values

    def below(self, refs: Sequence[Ref]) -> set[int]:
        """Return the numbers of the steps that some outputs need."""
        needed = {ref.node for ref in refs}
        for number in range(len(self.steps) - 1, -1, -1):
            if number in needed:
                needed.update(ref.node for ref in self.steps[number].inputs if ref is not None)
        return needed

    def only(self, refs: Sequence[Ref]) -> tuple[Computation, list[Ref]]:
        """Return a computation with only the steps that some outputs need, and these outputs."""
        moved = {old: new for new, old in enumerate(sorted(self.below(refs)))}
        result = Computation()
        for number in moved:
            step = self.steps[number]
            inputs = tuple([ref and Ref(moved[ref.node], ref.output) for ref in step.inputs])
            if inputs != step.inputs:
                step = Node(step.op, inputs, step.attributes, step.types, step.value)
            result.steps.append(step)
        return result, [Ref(moved[number], output) for number, output in refs]

    def _add(self, key: Any, step: Node) -> Ref:
        number = self._numbers.setdefault(key, len(self.steps))
        if number == len(self.steps):
            self.steps.append(step)
        return Ref(number)


def input_name(step: Node) -> str:
    """Return the name of an input; "" for other steps."""
    return str(step.attributes[0][1]) if step.op == INPUT else ""
