"""Hints for drawing shapes and attributes, taken from the conditions of a rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeGuard

from environments.tensor_graphs.rules.language.expressions import (
    Call,
    Literal,
    Name,
    Term,
    Variable,
    names,
    parts,
    variables,
)


class Hints:
    """What conditions say about attributes and shapes.

    Attributes:
      conditions: the conditions, each with the names of its variables and of its attributes.
      attributes: terms that an attribute must equal, by name of the attribute.
      lengths: number of elements of an attribute, by name of the attribute.
      elements: terms that elements of an attribute must equal, by name of the attribute and index.
      shapes: terms that the shape of a variable must equal, by name of the variable.
      sizes: pairs (axis, term that the size must equal), by name of the variable.
      rank: a rank that some condition asks for; None if there is none.
    """

    def __init__(self, conditions: Sequence[Term]) -> None:
        self.conditions = tuple(
            (one, frozenset(variables(one)), frozenset(names(one))) for one in conditions
        )
        self.attributes: dict[str, list[Term]] = {}
        self.lengths: dict[str, int] = {}
        self.elements: dict[str, dict[int, Term]] = {}
        self.shapes: dict[str, list[Term]] = {}
        self.sizes: dict[str, list[tuple[Term, Term]]] = {}
        self.rank: int | None = None
        for one, other in _equalities(conditions):
            self._add(one, other)
            self._add(other, one)
        for condition in conditions:
            self._find_rank(condition)

    def _add(self, one: Term, other: Term) -> None:
        if isinstance(one, Name) and one.name not in names(other):
            self.attributes.setdefault(one.name, []).append(other)
        if not isinstance(one, Call) or not one.arguments:
            return
        variable = one.arguments[0]
        if one.function == "length" and isinstance(variable, Name) and isinstance(other, Literal):
            self.lengths[variable.name] = int(other.value)
        if one.function == "nth" and isinstance(variable, Name):
            place = one.arguments[1]
            if isinstance(place, Literal) and int(place.value) >= 0:
                self.elements.setdefault(variable.name, {})[int(place.value)] = other
        if one.function == "slice" and is_list(other):
            self._add_slice(one, other)
        if not isinstance(variable, Variable) or variable.name in variables(other):
            return
        if one.function == "shape":
            self.shapes.setdefault(variable.name, []).append(other)
        elif one.function == "dim" and not isinstance(one.arguments[1], Variable):
            self.sizes.setdefault(variable.name, []).append((one.arguments[1], other))
        elif one.function == "size" and other == Literal(1):
            self.shapes.setdefault(variable.name, []).append(Call("list", ()))

    def _add_slice(self, one: Call, other: Term) -> None:
        """Add the sizes from a condition such as (= (slice (shape ?w) 2) (list 3 3))."""
        of, start = one.arguments[:2]
        if not isinstance(of, Call) or of.function != "shape" or not isinstance(start, Literal):
            return
        variable = of.arguments[0]
        assert isinstance(variable, Variable) and isinstance(other, Call)
        for place, size in enumerate(other.arguments, int(start.value)):
            assert not isinstance(size, Variable)
            self.sizes.setdefault(variable.name, []).append((Literal(place), size))

    def _find_rank(self, condition: Term) -> None:
        for part in parts(condition):
            if isinstance(part, Call) and part.function in ("=", ">="):
                one, other = part.arguments
                if isinstance(one, Call) and one.function == "rank" and isinstance(other, Literal):
                    self.rank = int(other.value)


def is_list(term: Term) -> TypeGuard[Call]:
    """Return whether a term lists its elements: (list …)."""
    return isinstance(term, Call) and term.function == "list"


def _equalities(conditions: Sequence[Term]) -> Iterator[tuple[Term, Term]]:
    for condition in conditions:
        if isinstance(condition, Call) and condition.function == "and":
            inside = [one for one in condition.arguments if not isinstance(one, Variable)]
            yield from _equalities(inside)
        elif isinstance(condition, Call) and condition.function == "=":
            one, other = condition.arguments
            if not isinstance(one, Variable) and not isinstance(other, Variable):
                yield one, other
