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
            (condition, frozenset(variables(condition)), frozenset(names(condition)))
            for condition in conditions
        )
        self.attributes: dict[str, list[Term]] = {}
        self.lengths: dict[str, int] = {}
        self.elements: dict[str, dict[int, Term]] = {}
        self.shapes: dict[str, list[Term]] = {}
        self.sizes: dict[str, list[tuple[Term, Term]]] = {}
        self.rank: int | None = None
        for left, right in _equalities(conditions):
            self._add_equality(left, right)
            self._add_equality(right, left)
        for condition in conditions:
            self._find_rank(condition)

    def _add_equality(self, left: Term, right: Term) -> None:
        """Note what an equality says of its left side; the caller also gives it turned round."""
        if isinstance(left, Name) and left.name not in names(right):
            self.attributes.setdefault(left.name, []).append(right)
        if not isinstance(left, Call) or not left.arguments:
            return
        variable = left.arguments[0]
        if left.function == "length" and isinstance(variable, Name) and isinstance(right, Literal):
            self.lengths[variable.name] = int(right.value)
        if left.function == "nth" and isinstance(variable, Name):
            place = left.arguments[1]
            if isinstance(place, Literal) and int(place.value) >= 0:
                self.elements.setdefault(variable.name, {})[int(place.value)] = right
        if left.function == "slice" and is_list(right):
            self._add_slice(left, right)
        if not isinstance(variable, Variable) or variable.name in variables(right):
            return
        if left.function == "shape":
            self.shapes.setdefault(variable.name, []).append(right)
        elif left.function == "dim" and not isinstance(left.arguments[1], Variable):
            self.sizes.setdefault(variable.name, []).append((left.arguments[1], right))
        elif left.function == "size" and right == Literal(1):
            self.shapes.setdefault(variable.name, []).append(Call("list", ()))

    def _add_slice(self, left: Call, right: Term) -> None:
        """Add the sizes from a condition such as (= (slice (shape ?w) 2) (list 3 3))."""
        of, start = left.arguments[:2]
        if not isinstance(of, Call) or of.function != "shape" or not isinstance(start, Literal):
            return
        variable = of.arguments[0]
        assert isinstance(variable, Variable) and isinstance(right, Call)
        for place, size in enumerate(right.arguments, int(start.value)):
            assert not isinstance(size, Variable)
            self.sizes.setdefault(variable.name, []).append((Literal(place), size))

    def _find_rank(self, condition: Term) -> None:
        for part in parts(condition):
            if isinstance(part, Call) and part.function in ("=", ">="):
                left, right = part.arguments
                if (
                    isinstance(left, Call)
                    and left.function == "rank"
                    and isinstance(right, Literal)
                ):
                    self.rank = int(right.value)


def is_list(term: Term) -> TypeGuard[Call]:
    """Return whether a term lists its elements: (list …)."""
    return isinstance(term, Call) and term.function == "list"


def _equalities(conditions: Sequence[Term]) -> Iterator[tuple[Term, Term]]:
    for condition in conditions:
        if isinstance(condition, Call) and condition.function == "and":
            inside = [
                argument for argument in condition.arguments if not isinstance(argument, Variable)
            ]
            yield from _equalities(inside)
        elif isinstance(condition, Call) and condition.function == "=":
            left, right = condition.arguments
            if not isinstance(left, Variable) and not isinstance(right, Variable):
                yield left, right
