"""One attempt to draw an instance: it binds variables and attributes, operator by operator.

Conditions serve as hints for what to draw (`Hints`). Each is checked as soon as its variables are
bound; if it does not hold, the last operator is drawn again.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from environments.tensor_graphs.graph.nodes import Ref, TensorType
from environments.tensor_graphs.operators import table
from environments.tensor_graphs.operators.operator import REQUIRED, OperatorError
from environments.tensor_graphs.rules.language import terms
from environments.tensor_graphs.rules.language.computations import Computation, TooLargeError
from environments.tensor_graphs.rules.language.expressions import (
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
from environments.tensor_graphs.rules.language.terms import Bindings, TermError
from environments.tensor_graphs.rules.verification.draws import Draw, ImpossibleError, Use, check
from environments.tensor_graphs.rules.verification.proposals import propose

# The expressions of a rule are looked at in each attempt.
_names = functools.lru_cache(maxsize=1024)(names)
_variables = functools.lru_cache(maxsize=1024)(variables)

MISFITS = (ImpossibleError, OperatorError, TermError, TooLargeError, IndexError)
"""Raised where choices do not fit together."""

_TRIES_OF_OPERATOR = 4
_TRIES_OF_SOURCE = 6


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
        self.attributes: dict[str, list[Term]] = collections.defaultdict(list)
        self.lengths: dict[str, int] = {}
        self.elements: dict[str, dict[int, Term]] = collections.defaultdict(dict)
        self.shapes: dict[str, list[Term]] = collections.defaultdict(list)
        self.sizes: dict[str, list[tuple[Any, Any]]] = collections.defaultdict(list)
        self.rank: int | None = None
        for left, right in _equalities(conditions):
            self._add_equality(left, right)
            self._add_equality(right, left)
        for part in (part for condition in conditions for part in parts(condition)):
            match part:
                case Call("=" | ">=", (Call("rank"), Literal(rank))):
                    self.rank = int(rank)

    def _add_equality(self, left: Any, right: Any) -> None:
        """Note what an equality says of its left side; the caller also gives it turned round."""
        match left, right:
            case Name(name), _ if name not in names(right):
                self.attributes[name].append(right)
            case Call("length", (Name(name),)), Literal(length):
                self.lengths[name] = int(length)
            case Call("nth", (Name(name), Literal(place))), _ if int(place) >= 0:
                self.elements[name][int(place)] = right
            case (
                Call("slice", (Call("shape", (Variable(name),)), Literal(start), *_)),
                Call("list", sizes),
            ):
                self.sizes[name] += [
                    (Literal(place), size) for place, size in enumerate(sizes, int(start))
                ]
            case Call("shape", (Variable(name),)), _ if name not in variables(right):
                self.shapes[name].append(right)
            case Call("dim", (Variable(name), axis)), _ if name not in variables(right):
                self.sizes[name].append((axis, right))
            case Call("size", (Variable(name),)), Literal(1):
                self.shapes[name].append(Call("list", ()))


def _equalities(conditions: Sequence[Term | Variable]) -> Iterator[tuple[Any, Any]]:
    for condition in conditions:
        match condition:
            case Call("and", inside):
                yield from _equalities(inside)
            case Call("=", (left, right)):
                yield left, right


@dataclasses.dataclass
class _State:
    """What is bound so far. Before an operator is drawn again, the state from before it returns.

    Attributes:
      limits: the number that the elements of a tensor of indices must stay below, by name.
      to_check: terms of the source that can only be computed later, with the values they must have.
      met: numbers of the conditions that are known to hold.
    """

    types: dict[str, TensorType]
    attributes: dict[str, Any]
    limits: dict[str, int]
    to_check: list[tuple[Term, Any]]
    met: set[int]

    def copy(self) -> _State:
        return _State(*[field.copy() for field in vars(self).values()])


class Attempt:
    """The variables and attributes bound so far, and the computation made from them."""

    def __init__(
        self, draw: Draw, hints: Hints, special_types: Mapping[str, str], dtypes: Sequence[str]
    ) -> None:
        self.draw = draw
        self.computation = Computation()
        self.state = _State({}, {}, {}, [], set())
        self._hints = hints
        self._special_types = special_types
        self._dtype = draw.rng.choice(dtypes)

    @property
    def bindings(self) -> Bindings:
        """The types and attributes bound so far."""
        return Bindings(self.state.types, self.state.attributes)

    def add_source(self, expression: Expression) -> Ref:
        """Add one expression of the source to the computation and return its place.

        Raises:
          ImpossibleError: the choices do not fit together; so do the other MISFITS.
        """
        is_given = all(name in self.state.types for name in _variables(expression))
        return self._retried(lambda: self._add(expression), 1 if is_given else _TRIES_OF_SOURCE)

    def bind_ranks(self, ranks: Mapping[str, int]) -> None:
        """Give variables shapes of these ranks before any operator uses them."""
        for name, rank in ranks.items():
            hinted = self._hinted_shape(name)
            drawn = tuple(self.draw.size() for _ in range(rank))
            self._bind_type(Variable(name), drawn if hinted is None else hinted)

    def bind(self, name: str, value: Any) -> None:
        """Give an attribute a value; if it has one already, the two must be equal."""
        bound = self.state.attributes.setdefault(name, value)
        check(bound == value and type(bound) is type(value))

    def _retried(self, add_fn: Any, num_tries: int) -> Any:
        for _ in range(num_tries - 1):
            before = self.state.copy()
            try:
                return add_fn()
            except MISFITS:
                self.state = before
        return add_fn()

    def _add(self, expression: Expression) -> Ref:
        if isinstance(expression, Variable):
            if expression.name not in self.state.types:
                self._bind_type(expression, self.draw.shape())
            return self.computation.add_input(expression.name, self.state.types[expression.name])
        assert isinstance(expression, Apply)
        if expression.op not in table.OPERATORS:
            raise OperatorError(f"no operator {expression.op}")
        places: list[Ref | None] = [
            None if operand is None or self._is_open(operand) else self._add(operand)
            for operand in expression.inputs
        ]
        has_choice = None in places or bool(_names(expression))
        tries = _TRIES_OF_OPERATOR if has_choice else 1
        return self._retried(lambda: self._add_operator(expression, list(places)), tries)

    def _add_operator(self, expression: Apply, places: list[Ref | None]) -> Ref:
        use = self._use(expression, places)
        propose(use)
        for place, operand in enumerate(expression.inputs):
            if operand is not None and places[place] is None:
                shape = use.shapes[place]
                self._bind_type(operand, self.draw.shape() if shape is None else shape)
                places[place] = self._add(operand)
        values = self._all_attributes(expression.op, use)
        self._note_limits(expression, places, values)
        place_of_output = self.computation.add(expression.op, places, values, expression.output)
        self._bind_attributes(
            expression, dict(self.computation.steps[place_of_output.node].attributes)
        )
        self._check_conditions()
        return place_of_output

    def _use(self, expression: Apply, places: list[Ref | None]) -> Use:
        shapes = [None if place is None else self._shape(place) for place in places]
        for place, operand in enumerate(expression.inputs):
            if places[place] is None and isinstance(operand, Variable):
                shapes[place] = self._hinted_shape(operand.name)
        operator = table.OPERATORS[expression.op]
        usual = {
            name: value for name, value in operator.attributes.items() if value is not REQUIRED
        }
        is_given = [operand is not None for operand in expression.inputs]
        elements: dict[str, dict[int, Any]] = {name: {} for name in operator.attributes}
        use = Use(
            expression.op, self.draw, shapes, is_given, usual, {}, elements, expression.output + 1
        )
        for name, term in expression.attributes:
            use.attributes.pop(name, None)
            self._hint(use, name, term)
        return use

    def _hint(self, use: Use, name: str, term: Term) -> None:
        """Copy into a use what the conditions say about one of its attributes."""
        hints = self._hints
        attribute = term.name if isinstance(term, Name) else ""
        for value in self._values(term, *hints.attributes[attribute]):
            use.attributes[name] = value
            break
        if isinstance(term, Call) and term.function == "list":
            use.lengths[name] = len(term.arguments)
        elif attribute in hints.lengths:
            use.lengths[name] = hints.lengths[attribute]
        for place, element in hints.elements[attribute].items():
            for value in self._values(element):
                use.elements[name][place] = value

    def _values(self, *candidates: Term) -> Iterator[Any]:
        """Yield the values of those candidates whose variables and attributes are bound."""
        for term in candidates:
            try:
                yield terms.as_attribute(terms.evaluate(term, self.bindings))
            except (KeyError, TermError):
                continue

    def _hinted_shape(self, name: str) -> tuple[int, ...] | None:
        for value in self._values(*self._hints.shapes[name]):
            if isinstance(value, tuple):
                return value
        return None

    def _is_open(self, expression: Expression) -> bool:
        return isinstance(expression, Variable) and expression.name not in self.state.types

    def _bind_type(self, expression: Expression, shape: Sequence[int]) -> None:
        assert isinstance(expression, Variable)
        sizes = list(shape)
        for place, term in self._hints.sizes[expression.name]:
            for index in self._values(place):
                for value in self._values(term):
                    if isinstance(value, int) and -len(sizes) <= index < len(sizes):
                        sizes[index] = value
        check(all(size > 0 for size in sizes))
        dtype = self._special_types.get(expression.name, self._dtype)
        self.state.types.setdefault(expression.name, TensorType(dtype, tuple(sizes)))

    def _all_attributes(self, op: str, use: Use) -> dict[str, Any]:
        """Return an operator's attributes: proposed, or drawn if numbers, or else the defaults."""
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
            for argument, element in zip(term.arguments, value, strict=True):
                assert not isinstance(argument, Variable)
                self._unify(argument, element)
        else:
            self.state.to_check.append((term, value))

    def _check_conditions(self) -> None:
        """Give up the attempt if a condition fails, because later choices cannot mend it."""
        types, attributes = self.state.types.keys(), self.state.attributes.keys()
        for number, (condition, of_types, of_attributes) in enumerate(self._hints.conditions):
            if number in self.state.met:
                continue
            if of_types <= types and of_attributes <= attributes:
                check(terms.holds(condition, self.bindings))
                self.state.met.add(number)

    def _shape(self, place: Ref) -> tuple[int, ...]:
        tensor = self.computation.type_of(place)
        return tuple(int(size) for size in (tensor and tensor.shape) or ())

    def _note_limits(
        self, expression: Apply, places: list[Ref | None], values: Mapping[str, Any]
    ) -> None:
        """Record the size that the indices of a Gather must stay below."""
        if expression.op != "Gather":
            return
        index, data = expression.inputs[1], places[0]
        if not isinstance(index, Variable) or data is None:
            raise ImpossibleError
        limit = self._shape(data)[values["axis"]]
        self.state.limits[index.name] = min(limit, self.state.limits.get(index.name, limit))
