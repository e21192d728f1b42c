"""Random instances of rules: shapes, types and attributes under which a rule can be applied.

An instance is drawn from the inside of the source out. What is not determined yet is proposed by
`proposals`, operator by operator, then everything is checked as a match is; what does not fit is
thrown away and drawn anew. So conditions restrict the instances exactly as they restrict matches.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping
from typing import Any

from environments.tensor_graphs import terms
from environments.tensor_graphs.expressions import (
    Apply,
    Array,
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
from environments.tensor_graphs.operators.operator import FLOAT_TYPES, REQUIRED, OperatorError
from environments.tensor_graphs.substitutions import Substitution
from environments.tensor_graphs.synthesis import proposals
from environments.tensor_graphs.synthesis.computations import (
    Computation,
    TooLargeError,
    add_expression,
)
from environments.tensor_graphs.synthesis.draws import Draw, ImpossibleError, Use
from environments.tensor_graphs.terms import Bindings, TermError

Place = tuple[int, int]

# Which inputs of operators are not of the type that the others have.
_OTHER_DTYPES = {
    ("Where", 0): "bool",
    ("Gather", 1): "int64",
    **{(op, place): "bool" for op in ("And", "Or", "Xor", "Not") for place in (0, 1)},
}
_DTYPES = ("float32",) * 8 + ("float64", "int64")


@dataclasses.dataclass(frozen=True)
class Instance:
    """A rule with everything in it determined but the elements of its variables.

    Attributes:
      bindings: what variables and attributes stand for.
      computation: of source and target.
      sources: places of the outputs.
      targets: likewise; empty where the rule does not apply, for the types would not be the same.
      fills: elements of the constants of the source, by the names that `given` has for them.
      limits: the number that elements of a tensor of indices must stay below, by name.
    """

    bindings: Bindings
    computation: Computation
    sources: tuple[Place, ...]
    targets: tuple[Place, ...]
    fills: Mapping[str, float]
    limits: Mapping[str, int]

    @property
    def given(self) -> dict[str, TensorType]:
        """Types of the tensors that the computation wants."""
        steps = self.computation.steps
        return {step.name: step.types[0] for step in steps if step.name}

    def __str__(self) -> str:
        shown = [f"?{name} {_type_text(one)}" for name, one in self.bindings.types.items()]
        shown += [f"${name} = {value!r}" for name, value in self.bindings.attributes.items()]
        return ", ".join(one for one in shown if not one.startswith("?#"))


def _type_text(tensor: TensorType) -> str:
    shape = ", ".join(map(str, tensor.shape or ()))
    return f"[{shape}]" if tensor.dtype == "float32" else f"{tensor.dtype} [{shape}]"


class InstanceDrawer:
    """Draws instances of one rule.

    Args:
      rule: the rule; its restrictions are not asked for.
      seed: determines all.
    """

    def __init__(self, rule: Substitution, seed: int = 0) -> None:
        self._rule = rule
        self._rng = random.Random(f"{seed} {rule.source} {rule.conditions}")
        self._fills: dict[str, Term] = {}
        self._sources = [self._without_arrays(one) for one in rule.source]
        self._definitions = dict(_definitions(rule.conditions))
        self._dtypes = dict(_other_dtypes(self._sources))
        self._rank = _usual_rank(rule.conditions)

    def draw(self, num_attempts: int = 2000) -> Instance | None:
        """An instance; None when none was found."""
        for _ in range(num_attempts):
            try:
                return self._attempt()
            except (ImpossibleError, OperatorError, TermError, TooLargeError):
                continue
        return None

    def draw_applicable(self, num_attempts: int = 50) -> Instance | None:
        """An instance to which the rule applies."""
        for _ in range(num_attempts):
            instance = self.draw()
            if instance is None or instance.targets:
                return instance
        return None

    def _without_arrays(self, expression: Expression) -> Expression:
        """Puts variables in the places of constants, a new one each time: shapes may differ."""
        if isinstance(expression, Array):
            name = f"#{len(self._fills)}"
            value = expression.arguments[0]
            assert not isinstance(value, Variable)
            self._fills[name] = value
            return Variable(name)
        if isinstance(expression, Apply):
            inputs = tuple(
                one if one is None else self._without_arrays(one) for one in expression.inputs
            )
            return dataclasses.replace(expression, inputs=inputs)
        return expression

    def _attempt(self) -> Instance:
        attempt = _Attempt(Draw(self._rng, self._rank), self._definitions, self._dtypes)
        sources = tuple(attempt.add(one) for one in self._sources)
        for term, value in attempt.to_check:
            _check(terms.as_attribute(terms.evaluate(term, attempt.bindings)) == value)
        fills: dict[str, float] = {}
        for name, term in self._fills.items():
            if isinstance(term, Name) and term.name not in attempt.attributes:
                attempt.bind(term.name, attempt.draw.number())
            fills[name] = float(terms.evaluate(term, attempt.bindings))
            dtype = attempt.types[name].dtype
            _check(dtype in FLOAT_TYPES or fills[name].is_integer())
        for condition in self._rule.conditions:
            _check(terms.holds(condition, attempt.bindings))
        targets = self._targets(attempt, sources)
        return Instance(
            attempt.bindings, attempt.computation, sources, targets, fills, attempt.limits
        )

    def _targets(self, attempt: _Attempt, sources: tuple[Place, ...]) -> tuple[Place, ...]:
        computation = attempt.computation
        try:
            targets = tuple(
                add_expression(computation, one, attempt.bindings) for one in self._rule.target
            )
        except (OperatorError, TermError, IndexError):
            return ()
        old, new = ([computation.type_of(one) for one in given] for given in (sources, targets))
        return targets if old == new else ()


class _Attempt:
    def __init__(
        self, draw: Draw, definitions: Mapping[str, Term], dtypes: Mapping[str, str]
    ) -> None:
        self.draw = draw
        self.computation = Computation()
        self.types: dict[str, TensorType] = {}
        self.attributes: dict[str, Any] = {}
        self.bindings = Bindings(self.types, self.attributes)
        self.limits: dict[str, int] = {}
        self.to_check: list[tuple[Term, Any]] = []
        self._definitions = definitions
        self._dtypes = dtypes
        self._dtype = draw.rng.choice(_DTYPES)

    def add(self, expression: Expression, least_outputs: int = 1) -> Place:
        if isinstance(expression, Variable):
            if expression.name not in self.types:
                self._bind_type(expression, self.draw.shape())
            return self.computation.add_given(expression.name, self.types[expression.name])
        assert isinstance(expression, Apply)
        operator = table.OPERATORS.get(expression.op)
        if operator is None:
            raise OperatorError(f"no operator {expression.op}")
        places: list[Place | None] = [
            None if one is None or self._is_open(one) else self.add(one)
            for one in expression.inputs
        ]
        use = Use(
            expression.op,
            self.draw,
            [None if one is None else self._shape(one) for one in places],
            [one is not None for one in expression.inputs],
            {name: value for name, value in operator.attributes.items() if value is not REQUIRED},
            {},
            expression.output + 1,
        )
        self._find_attributes(expression, use)
        usual = proposals.unary if len(places) == 1 else proposals.elementwise
        proposals.PROPOSALS.get(expression.op, usual)(use)
        for place, one in enumerate(expression.inputs):
            if one is not None and places[place] is None:
                shape = use.shapes[place]
                self._bind_type(one, self.draw.shape() if shape is None else shape)
                places[place] = self.add(one)
        values = self._all_attributes(expression.op, use)
        self._note_limits(expression, places, values)
        found = self.computation.add(expression.op, places, values, expression.output)
        self._bind_attributes(expression, dict(self.computation.steps[found[0]].attributes))
        return found

    def bind(self, name: str, value: Any) -> None:
        """An attribute's value; it must be the one that it has already."""
        known = self.attributes.setdefault(name, value)
        _check(known == value and type(known) is type(value))

    def _is_open(self, expression: Expression) -> bool:
        return isinstance(expression, Variable) and expression.name not in self.types

    def _bind_type(self, expression: Expression, shape: tuple[int, ...]) -> None:
        assert isinstance(expression, Variable)
        dtype = self._dtypes.get(expression.name, self._dtype)
        self.types.setdefault(expression.name, TensorType(dtype, tuple(shape)))

    def _find_attributes(self, expression: Apply, use: Use) -> None:
        """Notes what is known about the attributes of an operator."""
        for name, term in expression.attributes:
            use.attributes.pop(name, None)
            for one in (term, self._definitions.get(term.name) if isinstance(term, Name) else None):
                if one is None:
                    continue
                try:
                    use.attributes[name] = terms.as_attribute(terms.evaluate(one, self.bindings))
                except (KeyError, TermError):
                    continue
                break
            if isinstance(term, Call) and term.function == "list":
                use.lengths[name] = len(term.arguments)

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
            _check(term.value == value)
        elif term.function == "list":
            _check(isinstance(value, tuple) and len(value) == len(term.arguments))
            for argument, one in zip(term.arguments, value, strict=True):
                assert not isinstance(argument, Variable)
                self._unify(argument, one)
        else:
            self.to_check.append((term, value))

    def _shape(self, place: Place) -> tuple[int, ...]:
        return tuple(int(size) for size in self.computation.type_of(place).shape or ())

    def _note_limits(
        self, expression: Apply, places: list[Place | None], values: Mapping[str, Any]
    ) -> None:
        """Indices must stay inside of what they are indices of."""
        if expression.op != "Gather":
            return
        index = expression.inputs[1]
        data = places[0]
        _check(isinstance(index, Variable) and data is not None)
        assert isinstance(index, Variable) and data is not None
        limit = self._shape(data)[values["axis"]]
        self.limits[index.name] = min(limit, self.limits.get(index.name, limit))


def _check(is_right: bool) -> None:
    if not is_right:
        raise ImpossibleError


def _definitions(conditions: tuple[Term, ...]) -> Iterator[tuple[str, Term]]:
    """Attributes that a condition says the value of."""
    for condition in conditions:
        if not isinstance(condition, Call) or condition.function != "=":
            continue
        for one, other in (condition.arguments, condition.arguments[::-1]):
            if isinstance(other, Variable) or not isinstance(one, Name):
                continue
            if one.name not in names(other):
                yield one.name, other


def _usual_rank(conditions: tuple[Term, ...]) -> int | None:
    """A rank that a condition asks for."""
    for condition in conditions:
        for part in parts(condition):
            if isinstance(part, Call) and part.function in ("=", ">="):
                one, other = part.arguments
                if isinstance(one, Call) and one.function == "rank" and isinstance(other, Literal):
                    return int(other.value)
    return None


def _other_dtypes(sources: list[Expression]) -> Iterator[tuple[str, str]]:
    for part in (part for source in sources for part in parts(source)):
        if isinstance(part, Apply):
            for place, one in enumerate(part.inputs):
                if isinstance(one, Variable) and (part.op, place) in _OTHER_DTYPES:
                    yield one.name, _OTHER_DTYPES[part.op, place]


def mentioned(rule: Substitution, condition: Term) -> tuple[str, ...]:
    """The variables and attributes that a condition is about."""
    return (*variables(condition), *names(condition))
