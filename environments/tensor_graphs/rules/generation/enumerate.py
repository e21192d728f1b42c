"""Enumerate all small expressions over an operator vocabulary, and find which ones are equal.

Expressions are built from the inside out, and computed in a few small worlds. A world gives every
variable a shape and random elements, in the field of `operators.field`, and every attribute a
value. Expressions with the same values in all worlds are almost certainly equal; expressions with
the same values in some worlds may be equal under a condition.

An expression that equals an earlier one in all worlds is a candidate for a rule. No larger
expression is built from it, because the same larger expressions built from the earlier one are
equal to those.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from environments.tensor_graphs.graph.nodes import Attributes, TensorType
from environments.tensor_graphs.operators import table
from environments.tensor_graphs.operators.field import Field
from environments.tensor_graphs.operators.operator import FLOAT_TYPES, OperatorError, num_elements
from environments.tensor_graphs.rules.language import terms
from environments.tensor_graphs.rules.language.computations import MAX_ELEMENTS
from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Expression,
    Term,
    Variable,
)
from environments.tensor_graphs.rules.language.terms import Bindings, TermError

_LEAST_WORLDS = 3
_MOST_PARTIAL = 3


@dataclasses.dataclass(frozen=True)
class Move:
    """An operator with attributes, from which expressions are built.

    Attributes:
      excluded: leaves that are not its first input.
      is_distinct: whether its two inputs differ.
    """

    op: str
    arity: int
    attributes: tuple[tuple[str, Term], ...] = ()
    outputs: int = 1
    excluded: tuple[Expression, ...] = ()
    is_distinct: bool = False


class Value(NamedTuple):
    """A tensor in a world: its type, its elements in the field, and a hash of these."""

    type: TensorType
    array: np.ndarray
    fingerprint: int


class World:
    """Shapes, elements and attributes with which expressions have values."""

    def __init__(
        self, shapes: Mapping[str, Sequence[int]], attributes: Mapping[str, Any], seed: int
    ) -> None:
        types = {name: TensorType("float32", tuple(shape)) for name, shape in shapes.items()}
        self.bindings = Bindings(types, dict(attributes))
        self.field = Field(seed)
        self._rng = np.random.default_rng(seed)

    def leaf(self, leaf: Expression) -> Value | None:
        """Return a variable with new random elements, or a constant; None if it has no value."""
        if isinstance(leaf, Variable):
            tensor = self.bindings.types[leaf.name]
            return _value(tensor, self.field.random(self._rng, tensor.shape))  # type: ignore[arg-type]
        assert isinstance(leaf, Array)
        try:
            array = terms.make_array(leaf, self.bindings)
        except TermError:
            return None
        tensor = TensorType(array.dtype.name, array.shape)
        return _value(tensor, self.field.embed(array) if tensor.dtype in FLOAT_TYPES else array)


def _value(tensor: TensorType, array: np.ndarray) -> Value:
    digest = hashlib.blake2b(f"{array.dtype.char}{array.shape}".encode(), digest_size=8)
    digest.update(np.ascontiguousarray(array).tobytes())
    return Value(tensor, array, int.from_bytes(digest.digest(), "little"))


class _Application:
    """A move in one world. What it makes of inputs of some types is worked out once."""

    def __init__(self, move: Move, world: World) -> None:
        self._move, self._world = move, world
        self._nothing = (None,) * move.outputs
        self._inferred: dict[Any, tuple[Attributes, tuple[TensorType, ...]] | None] = {}

    def outputs(self, inputs: Sequence[Value | None]) -> tuple[Value | None, ...]:
        """Return the value of each output; None where it has none."""
        values = [value for value in inputs if value is not None]
        if len(values) < len(inputs):
            return self._nothing
        types = tuple(value.type for value in values)
        if types not in self._inferred:
            self._inferred[types] = self._infer(types)
        inferred = self._inferred[types]
        if inferred is None:
            return self._nothing
        attributes, output_types = inferred
        arrays = table.evaluate(
            self._move.op, [value.array for value in values], attributes, self._world.field
        )
        outputs = map(_value, output_types, arrays)
        return (*outputs, *self._nothing)[: len(self._nothing)]

    def _infer(
        self, types: tuple[TensorType, ...]
    ) -> tuple[Attributes, tuple[TensorType, ...]] | None:
        """Return the attributes and the types of the outputs; None if they have no values."""
        try:
            values = {
                name: terms.as_attribute(terms.evaluate(term, self._world.bindings))
                for name, term in self._move.attributes
            }
            attributes = table.complete(self._move.op, values, types)
            outputs = table.infer(self._move.op, types, attributes)
        except (OperatorError, TermError):
            return None
        return (attributes, outputs) if sum(map(num_elements, outputs)) <= MAX_ELEMENTS else None


@dataclasses.dataclass(frozen=True)
class Entry:
    """An expression and its values in the worlds.

    Attributes:
      size: number of operators in the expression; repeated ones count each time.
      prints: the fingerprint of its value in each world; None where it has no value.
      values: these values; none are kept of the largest expressions, which are most, because no
        expression is built from those.
    """

    expression: Expression
    size: int
    prints: tuple[int | None, ...]
    values: tuple[Value | None, ...] = ()


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Two expressions that may be equal.

    Attributes:
      larger: the new expression; it has as many operators as `smaller`, or more.
      smaller: the expression that was built earlier.
      always: whether the two are equal in every world in which both have values.
    """

    larger: Entry
    smaller: Entry
    always: bool


class Enumeration:
    """All expressions with up to a number of operators.

    Attributes:
      candidates: pairs of expressions that may be equal.
      num_expressions: number of expressions that have values in enough worlds.
    """

    def __init__(
        self,
        worlds: Sequence[World],
        leaves: Sequence[Expression],
        moves: Sequence[Move],
        max_size: int,
    ) -> None:
        self.candidates: list[Candidate] = []
        self.num_expressions = 0
        self._worlds = worlds
        self._max_size = max_size
        self._blocks: list[list[Entry]] = [[]]
        self._known: dict[tuple[int | None, ...], Entry] = {}
        self._by_print: list[dict[int, list[Entry]]] = [{} for _ in worlds]
        for leaf in leaves:
            self._take(leaf, 0, [world.leaf(leaf) for world in worlds])
        for size in range(1, max_size + 1):
            self._blocks.append([])
            for move in moves:
                self._build(move, size)

    @property
    def num_distinct(self) -> int:
        """Number of expressions that equal no earlier one."""
        return len(self._known)

    def _build(self, move: Move, size: int) -> None:
        applications = [_Application(move, world) for world in self._worlds]
        for inputs in self._inputs(move, size):
            in_worlds = zip(*[entry.values for entry in inputs], strict=True)
            outputs = [
                application.outputs(values)
                for application, values in zip(applications, in_worlds, strict=True)
            ]
            operands = tuple([entry.expression for entry in inputs])
            for output, values in enumerate(zip(*outputs, strict=True)):
                self._take(Apply(move.op, operands, move.attributes, output), size, values)

    def _inputs(self, move: Move, size: int) -> Iterator[tuple[Entry, ...]]:
        if move.arity == 1:
            for entry in tuple(self._blocks[size - 1]):
                if entry.expression not in move.excluded:
                    yield (entry,)
            return
        is_commutative = table.OPERATORS[move.op].commutative
        for first in range(size):
            second = size - 1 - first
            if is_commutative and second > first:
                continue
            for i, left in enumerate(tuple(self._blocks[first])):
                if left.expression in move.excluded:
                    continue
                for j, right in enumerate(tuple(self._blocks[second])):
                    if is_commutative and first == second and j > i:
                        break
                    if left is not right or not move.is_distinct:
                        yield left, right

    def _take(self, expression: Expression, size: int, values: Sequence[Value | None]) -> None:
        """Compare an expression with all before it, and add it to them unless it says the same."""
        prints = tuple(None if value is None else value.fingerprint for value in values)
        if _num_values(prints) < _LEAST_WORLDS:
            return
        entry = Entry(expression, size, prints, tuple(values) if size < self._max_size else ())
        self.num_expressions += 1
        twin = self._known.get(prints)
        if twin is not None:
            self.candidates.append(Candidate(entry, twin, True))
            return
        is_redundant = False
        for rival, always in self._partly_equal(entry):
            self.candidates.append(Candidate(entry, rival, always))
            pairs = zip(prints, rival.prints, strict=True)
            is_redundant |= all(new is None or new == old for new, old in pairs)
        if is_redundant:
            return
        self._known[prints] = entry
        self._blocks[entry.size].append(entry)
        for by_print, fingerprint in zip(self._by_print, prints, strict=True):
            if fingerprint is not None:
                by_print.setdefault(fingerprint, []).append(entry)

    def _partly_equal(self, entry: Entry) -> list[tuple[Entry, bool]]:
        """Return expressions equal to an entry's in some worlds, those with the most worlds first.

        Each comes with whether the two are equal in every world in which both have values.
        """
        counts: collections.Counter[int] = collections.Counter()
        entries: dict[int, Entry] = {}
        for by_print, fingerprint in zip(self._by_print, entry.prints, strict=True):
            for rival in by_print.get(fingerprint, ()) if fingerprint is not None else ():
                counts[id(rival)] += 1
                entries[id(rival)] = rival
        result = []
        for key, count in counts.most_common(_MOST_PARTIAL):
            if count >= _LEAST_WORLDS:
                rival = entries[key]
                both = sum(
                    left is not None and right is not None
                    for left, right in zip(entry.prints, rival.prints, strict=True)
                )
                result.append((rival, both == count))
        return result


def _num_values(prints: Sequence[int | None]) -> int:
    return len(prints) - prints.count(None)
