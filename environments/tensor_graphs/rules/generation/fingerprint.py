"""Compute fingerprints of expressions: hashes of their values in a few small worlds.

A world gives every variable a shape and random elements, in the field of `operators.field`, and
every attribute a value. Expressions with the same values in all worlds are almost certainly equal;
expressions with the same values in some worlds may be equal under a condition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import TensorType
from environments.tensor_graphs.operators import table
from environments.tensor_graphs.operators.field import Field
from environments.tensor_graphs.operators.operator import OperatorError
from environments.tensor_graphs.rules.language import terms
from environments.tensor_graphs.rules.language.expressions import Expression, Term
from environments.tensor_graphs.rules.language.terms import Bindings, TermError
from environments.tensor_graphs.rules.verification.computations import (
    Computation,
    TooLargeError,
    add_expression,
)

Place = tuple[int, int]


class World:
    """Shapes, elements and attributes with which expressions have values."""

    def __init__(
        self, shapes: Mapping[str, Sequence[int]], attributes: Mapping[str, Any], seed: int
    ) -> None:
        types = {name: TensorType("float32", tuple(shape)) for name, shape in shapes.items()}
        self.bindings = Bindings(types, dict(attributes))
        self._field = Field(seed)
        self._rng = np.random.default_rng(seed)
        self._computation = Computation()
        self._values: list[tuple[np.ndarray, ...]] = []
        self._prints: list[tuple[int, ...]] = []
        self._terms: dict[Term, Any] = {}

    def place(self, expression: Expression) -> Place | None:
        """Add a leaf, a variable or a constant, and return its place; None if it has no value."""
        try:
            place = add_expression(self._computation, expression, self.bindings)
        except (OperatorError, TermError, TooLargeError):
            return None
        self._catch_up()
        return place

    def apply(
        self,
        op: str,
        inputs: Sequence[Place | None],
        attributes: Sequence[tuple[str, Term]],
        output: int = 0,
    ) -> Place | None:
        """Apply an operator and return the place of an output; None if it cannot be applied."""
        if any(place is None for place in inputs):
            return None
        try:
            values = {name: self._value_of(term) for name, term in attributes}
            place = self._computation.add(op, inputs, values, output)
        except (OperatorError, TermError, TooLargeError, IndexError):
            return None
        self._catch_up()
        return place

    def fingerprint(self, place: Place | None) -> int | None:
        """Return the hash of the tensor at a place, equal for equal tensors; None for None."""
        return None if place is None else self._prints[place[0]][place[1]]

    def _value_of(self, term: Term) -> Any:
        if term not in self._terms:
            try:
                self._terms[term] = terms.as_attribute(terms.evaluate(term, self.bindings))
            except TermError as error:
                self._terms[term] = error
        value = self._terms[term]
        if isinstance(value, TermError):
            raise value
        return value

    def _catch_up(self) -> None:
        """Compute the values and hashes of steps that were added since the last call."""
        for step in self._computation.steps[len(self._values) :]:
            if step.op:
                arrays = [
                    self._values[place[0]][place[1]] for place in step.inputs if place is not None
                ]
                outputs = table.evaluate(step.op, arrays, step.attributes, self._field)
            elif step.value is not None:
                outputs = (self._field.embed(step.value),)
            else:
                shape = tuple(int(size) for size in step.types[0].shape or ())
                outputs = (self._field.random(self._rng, shape),)
            self._values.append(tuple(outputs))
            self._prints.append(tuple(map(_digest, outputs)))


def _digest(array: np.ndarray) -> int:
    digest = hashlib.blake2b(f"{array.dtype}{array.shape}".encode(), digest_size=8)
    digest.update(np.ascontiguousarray(array).tobytes())
    return int.from_bytes(digest.digest(), "little")
