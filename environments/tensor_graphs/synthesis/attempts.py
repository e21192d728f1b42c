"""One try at drawing an instance: variables and attributes are bound, operator by operator.

What conditions say about shapes and attributes is used as soon as it says something: as a hint of
what to draw, and to try the last operator again, with other choices, where it is not met.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from environments.tensor_graphs import terms
from environments.tensor_graphs.expressions import (
    Apply,
    Call,
    Expression,
    Literal,
    Name,
    Term,
    Variable,
    names,
    parts,
    variables,
)
from environments.tensor_graphs.nodes import TensorType
from environments.tensor_graphs.operators import table
from environments.tensor_graphs.operators.operator import REQUIRED, OperatorError
from environments.tensor_graphs.synthesis import proposals
from environments.tensor_graphs.synthesis.computations import Computation, TooLargeError
from environments.tensor_graphs.synthesis.draws import Draw, ImpossibleError, Use
from environments.tensor_graphs.terms import Bindings, TermError

Place = tuple[int, int]

FITS_NOT = (ImpossibleError, OperatorError, TermError, TooLargeError, IndexError)
"""What is raised where choices do not fit together."""

_DTYPES = ("float32",) * 8 + ("float64", "int64")
_TRIES_OF_OPERATOR = 4
_TRIES_OF_SOURCE = 6


def check(is_right: bool) -> None:
    """Gives up unless something is right.

    Raises:
      ImpossibleError: it is not.
    """
    if not is_right:
        raise ImpossibleError


class Hints:
    """What conditions say about attributes and shapes.

    Attributes:
      conditions: all of them, with the variables and attributes that they are about.
      attributes: terms that an attribute must have the value of.
      lengths: how many elements an attribute has.
      elements: terms that elements of an attribute must have the values of, by their places.
      shapes: terms that a variable must have the shape of.
      sizes: terms that one of a variable's sizes must have the value of, by its place.
      rank: one that a condition asks for.
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
        if one.function == "slice" and _is_list(other):
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
        """Such as (= (slice (shape ?w) 2) (list 3 3))."""
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


def _is_list(term: Term) -> bool:
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


@dataclasses.dataclass
class _State:
    types: dict[str, TensorType]
    attributes: dict[str, Any]
    limits: dict[str, int]
    to_check: list[tuple[Term, Any]]
    met: set[Term]

    def copy(self) -> _State:
        return _State(*(type(one)(one) for one in vars(self).values()))


class Attempt:
    """One try.

    Args:
      draw: makes the choices.
      hints: what conditions say.
      dtypes: of the variables that are not of the type that the others have.
    """

    def __init__(self, draw: Draw, hints: Hints, dtypes: Mapping[str, str]) -> None:
        self.draw = draw
        self.computation = Computation()
        self.state = _State({}, {}, {}, [], set())
        self._hints = hints
        self._dtypes = dtypes
        self._dtype = draw.rng.choice(_DTYPES)

    @property
    def bindings(self) -> Bindings:
        """What is bound so far."""
        return Bindings(self.state.types, self.state.attributes)

    def add_source(self, expression: Expression) -> Place:
        """Adds a whole source.

        Raises:
          ImpossibleError, …: see FITS_NOT.
        """
        is_given = all(name in self.state.types for name in variables(expression))
        return self._retried(lambda: self._add(expression), 1 if is_given else _TRIES_OF_SOURCE)

    def bind_ranks(self, ranks: Mapping[str, int]) -> None:
        """Shapes of variables, before anything is known of what they are used for."""
        for name, rank in ranks.items():
            hinted = self._hinted_shape(name)
            drawn = tuple(self.draw.size() for _ in range(rank))
            self._bind_type(Variable(name), drawn if hinted is None else hinted)

    def bind(self, name: str, value: Any) -> None:
        """An attribute's value; it must be the one that it has already."""
        known = self.state.attributes.setdefault(name, value)
        check(known == value and type(known) is type(value))

    def _retried(self, add_fn: Any, num_tries: int) -> Any:
        before = self.state.copy()
        for number in range(num_tries):
            try:
                return add_fn()
            except FITS_NOT:
                if number == num_tries - 1:
                    raise
                self.state = before.copy()
        raise ImpossibleError

    def _add(self, expression: Expression) -> Place:
        if isinstance(expression, Variable):
            if expression.name not in self.state.types:
                self._bind_type(expression, self.draw.shape())
            return self.computation.add_given(expression.name, self.state.types[expression.name])
        assert isinstance(expression, Apply)
        if expression.op not in table.OPERATORS:
            raise OperatorError(f"no operator {expression.op}")
        places: list[Place | None] = [
            None if one is None or self._is_open(one) else self._add(one)
            for one in expression.inputs
        ]
        has_choice = None in places or bool(names(expression))
        tries = _TRIES_OF_OPERATOR if has_choice else 1
        return self._retried(lambda: self._add_operator(expression, list(places)), tries)

    def _add_operator(self, expression: Apply, places: list[Place | None]) -> Place:
        use = self._use(expression, places)
        usual = proposals.unary if len(places) == 1 else proposals.elementwise
        proposals.PROPOSALS.get(expression.op, usual)(use)
        for place, one in enumerate(expression.inputs):
            if one is not None and places[place] is None:
                shape = use.shapes[place]
                self._bind_type(one, self.draw.shape() if shape is None else shape)
                places[place] = self._add(one)
        values = self._all_attributes(expression.op, use)
        self._note_limits(expression, places, values)
        found = self.computation.add(expression.op, places, values, expression.output)
        self._bind_attributes(expression, dict(self.computation.steps[found[0]].attributes))
        self._check_conditions()
        return found

    def _use(self, expression: Apply, places: list[Place | None]) -> Use:
        shapes = [None if one is None else self._shape(one) for one in places]
        for place, one in enumerate(expression.inputs):
            if places[place] is None and isinstance(one, Variable):
                shapes[place] = self._hinted_shape(one.name)
        operator = table.OPERATORS[expression.op]
        usual = {name: one for name, one in operator.attributes.items() if one is not REQUIRED}
        is_given = [one is not None for one in expression.inputs]
        elements: dict[str, dict[int, Any]] = {name: {} for name in operator.attributes}
        use = Use(
            expression.op, self.draw, shapes, is_given, usual, {}, elements, expression.output + 1
        )
        for name, term in expression.attributes:
            use.attributes.pop(name, None)
            self._hint(use, name, term)
        return use

    def _hint(self, use: Use, name: str, term: Term) -> None:
        """What is known of an attribute."""
        hints = self._hints
        attribute = term.name if isinstance(term, Name) else ""
        for value in self._values(term, *hints.attributes.get(attribute, [])):
            use.attributes[name] = value
            break
        if isinstance(term, Call) and _is_list(term):
            use.lengths[name] = len(term.arguments)
        elif attribute in hints.lengths:
            use.lengths[name] = hints.lengths[attribute]
        for place, element in hints.elements.get(attribute, {}).items():
            for value in self._values(element):
                use.elements[name][place] = value

    def _values(self, *given: Term) -> Iterator[Any]:
        """The values of those terms that have one already."""
        for term in given:
            try:
                yield terms.as_attribute(terms.evaluate(term, self.bindings))
            except (KeyError, TermError):
                continue

    def _hinted_shape(self, name: str) -> tuple[int, ...] | None:
        for value in self._values(*self._hints.shapes.get(name, [])):
            if isinstance(value, tuple):
                return value
        return None

    def _is_open(self, expression: Expression) -> bool:
        return isinstance(expression, Variable) and expression.name not in self.state.types

    def _bind_type(self, expression: Expression, shape: Sequence[int]) -> None:
        assert isinstance(expression, Variable)
        sizes = list(shape)
        for place, term in self._hints.sizes.get(expression.name, []):
            for index in self._values(place):
                for value in self._values(term):
                    if isinstance(value, int) and -len(sizes) <= index < len(sizes):
                        sizes[index] = value
        check(all(size > 0 for size in sizes))
        dtype = self._dtypes.get(expression.name, self._dtype)
        self.state.types.setdefault(expression.name, TensorType(dtype, tuple(sizes)))

    def _all_attributes(self, op: str, use: Use) -> dict[str, Any]:
        """Those of the operator; what no proposal speaks of is drawn."""
        values = {}
        for name, usual in table.OPERATORS[op].attributes.items():
            if name in use.attributes:
                values[name] = use.attributes[name]
            elif isinstance(usual, float):
                values[name] = self.draw.number()
            elif usual is not REQUIRED:
                values[name] = usual
        return values

    def _bind_attributes(self, expression: Apply, values: Mapping[str, Any]) -> None:
        for name, term in expression.attributes:
            if name not in values:
                raise OperatorError(f"{expression.op} has no attribute {name}")
            self._unify(term, values[name])

    def _unify(self, term: Term, value: Any) -> None:
        if isinstance(term, Name):
            self.bind(term.name, value)
        elif isinstance(term, Literal):
            check(term.value == value)
        elif term.function == "list":
            check(isinstance(value, tuple) and len(value) == len(term.arguments))
            for argument, one in zip(term.arguments, value, strict=True):
                assert not isinstance(argument, Variable)
                self._unify(argument, one)
        else:
            self.state.to_check.append((term, value))

    def _check_conditions(self) -> None:
        """Gives up as soon as a condition is not met; later choices cannot mend that."""
        types, attributes = self.state.types.keys(), self.state.attributes.keys()
        for condition, of_types, of_attributes in self._hints.conditions:
            if condition in self.state.met:
                continue
            if of_types <= types and of_attributes <= attributes:
                check(terms.holds(condition, self.bindings))
                self.state.met.add(condition)

    def _shape(self, place: Place) -> tuple[int, ...]:
        return tuple(int(size) for size in self.computation.type_of(place).shape or ())

    def _note_limits(
        self, expression: Apply, places: list[Place | None], values: Mapping[str, Any]
    ) -> None:
        """Indices must stay inside of what they are indices of."""
        if expression.op != "Gather":
            return
        index, data = expression.inputs[1], places[0]
        if not isinstance(index, Variable) or data is None:
            raise ImpossibleError
        limit = self._shape(data)[values["axis"]]
        self.state.limits[index.name] = min(limit, self.state.limits.get(index.name, limit))
