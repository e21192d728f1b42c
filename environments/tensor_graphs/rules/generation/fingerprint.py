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

from environments.tensor_graphs.graph.nodes import Attributes, Ref, TensorType
from environments.tensor_graphs.operators import table
from environments.tensor_graphs.operators.field import Field
from environments.tensor_graphs.operators.operator import OperatorError, num_elements
from environments.tensor_graphs.rules.language import terms
from environments.tensor_graphs.rules.language.computations import (
    MAX_ELEMENTS,
    Computation,
    TooLargeError,
    input_name,
)
from environments.tensor_graphs.rules.language.expressions import Expression, Term
from environments.tensor_graphs.rules.language.terms import Bindings, TermError


class World:
    """Shapes, elements and attributes with which expressions have values."""

    def __init__(
        self, shapes: Mapping[str, Sequence[int]], attributes: Mapping[str, Any], seed: int
    ) -> None:
        self._shapes = {name: tuple(shape) for name, shape in shapes.items()}
        types = {name: TensorType("float32", shape) for name, shape in self._shapes.items()}
        self.bindings = Bindings(types, dict(attributes))
        self._field = Field(seed)
        self._rng = np.random.default_rng(seed)
        self._computation = Computation()
        self._values: list[tuple[np.ndarray, ...]] = []
        self._prints: list[tuple[int, ...]] = []
        self._terms: dict[Term, Any] = {}

    def place(self, expression: Expression) -> Ref | None:
        """Add a leaf, a variable or a constant, and return its place; None if it has no value."""
        try:
            return self._computation.add_expression(expression, self.bindings)
        except (OperatorError, TermError, TooLargeError):
            return None

    def apply(
        self,
        op: str,
        inputs: Sequence[Ref | None],
        attributes: Sequence[tuple[str, Term]],
        output: int = 0,
    ) -> Ref | None:
        """Apply an operator and return the place of an output; None if it cannot be applied."""
        if any(place is None for place in inputs):
            return None
        try:
            values = {name: self._value_of(term) for name, term in attributes}
            return self._computation.add(op, inputs, values, output)
        except (OperatorError, TermError, TooLargeError, IndexError):
            return None

    def fingerprint(self, place: Ref | None) -> int | None:
        """Return the hash of the tensor at a place, equal for equal tensors; None for None."""
        if place is None:
            return None
        names = map(input_name, self._computation.steps[len(self._values) :])
        new = {name: self._field.random(self._rng, self._shapes[name]) for name in names if name}
        self._computation.run(new, self._field, self._values)
        self._prints += [
            tuple(map(_digest, arrays)) for arrays in self._values[len(self._prints) :]
        ]
        return self._prints[place.node][place.output]

    def application(
        self, op: str, attributes: Sequence[tuple[str, Term]], num_outputs: int = 1
    ) -> Application | None:
        """Return an operator to be applied often; None if one of its attributes has no value."""
        try:
            values = {name: self._value_of(term) for name, term in attributes}
        except TermError:
            return None
        return Application(op, values, num_outputs, self)

    def type_of(self, place: Ref) -> TensorType | None:
        """Return the type of the tensor at a place."""
        return self._computation.type_of(place)

    def evaluate(
        self, op: str, inputs: Sequence[Ref], attributes: Attributes
    ) -> tuple[np.ndarray, ...]:
        """Apply an operator to tensors whose fingerprints were asked for; remember nothing."""
        arrays = [self._values[place.node][place.output] for place in inputs]
        return table.evaluate(op, arrays, attributes, self._field)

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


class Application:
    """An operator with its attributes in one world, whose results are not kept.

    Most expressions are of the largest size, and none is built from those. So their values need no
    memory, and what an operator makes of inputs of some types is worked out once.
    """

    def __init__(self, op: str, values: Mapping[str, Any], num_outputs: int, world: World) -> None:
        self._op, self._values, self._world = op, values, world
        self._nothing = (None,) * num_outputs
        self._attributes: dict[tuple[TensorType | None, ...], Attributes | None] = {}

    def fingerprints(self, inputs: Sequence[Ref]) -> tuple[int | None, ...]:
        """Return what `World.apply` and `World.fingerprint` would give, for each output."""
        types = tuple([self._world.type_of(place) for place in inputs])
        if types not in self._attributes:
            self._attributes[types] = self._attributes_for(types)
        attributes = self._attributes[types]
        if attributes is None:
            return self._nothing
        arrays = self._world.evaluate(self._op, inputs, attributes)
        return (*map(_digest, arrays), *self._nothing)[: len(self._nothing)]

    def _attributes_for(self, types: tuple[TensorType | None, ...]) -> Attributes | None:
        try:
            attributes = table.complete(self._op, self._values, types)
            outputs = table.infer(self._op, types, attributes)
        except OperatorError:
            return None
        return attributes if sum(map(num_elements, outputs)) <= MAX_ELEMENTS else None


def _digest(array: np.ndarray) -> int:
    digest = hashlib.blake2b(f"{array.dtype.char}{array.shape}".encode(), digest_size=8)
    digest.update(np.ascontiguousarray(array).tobytes())
    return int.from_bytes(digest.digest(), "little")
