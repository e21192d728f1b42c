"""Rules: which expressions may be replaced by which others, and when.

A rule (section 3.1 of the thesis calls it a transformation or an xfer) says that the expressions of
its source and of its target have the same values, whatever tensors its variables stand for. A rule
can replace several expressions together:

  (MatMul ?x ?v)   =>   (output 0 (Split (MatMul ?x (Concat ?v ?w …)) …))
  (MatMul ?x ?w)   =>   (output 1 (Split (MatMul ?x (Concat ?v ?w …)) …))

Conditions say when the values are the same. Restrictions say where the rule is worth trying, for
instance where a weight is a constant: a value computed from constants alone costs nothing when the
model runs.

Every rule has one more condition: a new output has the type of the output that it replaces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from environments.tensor_graphs.rules.language.element_types import FLOAT, GROUPS
from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Call,
    Expression,
    ExpressionError,
    Name,
    Part,
    Term,
    Variable,
    names,
    parse,
    parse_term,
    parts,
    variables,
)
from environments.tensor_graphs.rules.language.terms import ARRAYS, FUNCTIONS

_FIELDS = ("name", "source", "target", "conditions", "restrictions", "verified_by",
           "may_change_nonfinite", "may_lose_digits", "types")  # fmt: skip


class RuleError(ValueError):
    """A rule is not well formed; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule by which a graph may be changed.

    Attributes:
      name: name of the rule, unique among the rules that are used together.
      source: the expressions that are replaced; none is a part of another.
      target: the expressions that replace them, one for each.
      conditions: terms that must hold for the rule to be right.
      restrictions: terms that must hold for the rule to be tried.
      verified_by: how the rule was shown to be right; empty if it was not.
      may_change_nonfinite: whether the rule may turn NaN or infinity into something else, or
        something else into them; false only if verification found no such case.
      may_lose_digits: whether the target may be much less exact than the source where large numbers
        cancel; false only if verification found no such case.
      types: the groups of element types that the rule is right for, some of GROUPS.

    Raises:
      RuleError: the rule is not well formed; for instance, it uses a variable that it does not
        bind, or an unknown function.
    """

    name: str
    source: tuple[Expression, ...]
    target: tuple[Expression, ...]
    conditions: tuple[Term, ...] = ()
    restrictions: tuple[Term, ...] = ()
    verified_by: str = ""
    may_change_nonfinite: bool = True
    may_lose_digits: bool = True
    types: tuple[str, ...] = (FLOAT,)

    def __post_init__(self) -> None:
        for problem in _problems(self):
            raise RuleError(f"rule {self.name}: {problem}")

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables of the source, in the order of their first mention."""
        return variables(*self.source)

    @property
    def names(self) -> tuple[str, ...]:
        """Attributes of the source, in the order of their first mention."""
        return names(*self.source)

    @property
    def constants(self) -> frozenset[str]:
        """Variables whose tensors must be constants for the rule to be tried."""
        return frozenset(
            variable.name
            for one in self.restrictions
            if isinstance(one, Call) and one.function == "constant"
            for variable in one.arguments
            if isinstance(variable, Variable)
        )

    def as_verified(self, record: Rule) -> Rule:
        """Return this rule with the results of the verification of an equal rule."""
        return dataclasses.replace(
            self,
            verified_by=record.verified_by,
            may_change_nonfinite=record.may_change_nonfinite,
            may_lose_digits=record.may_lose_digits,
            types=record.types,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the rule as a JSON object."""
        return {
            "name": self.name,
            **{field: [str(one) for one in getattr(self, field)] for field in _FIELDS[1:5]},
            "verified_by": self.verified_by,
            "may_change_nonfinite": self.may_change_nonfinite,
            "may_lose_digits": self.may_lose_digits,
            "types": list(self.types),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Rule:
        """Make a rule from the result of `as_dict`.

        Raises:
          RuleError: the fields make no rule.
        """
        name = data.get("name")
        if not isinstance(name, str) or not name:
            raise RuleError(f"a rule without a name: {str(data)[:80]}")
        unknown = sorted(set(data) - set(_FIELDS))
        if unknown:
            raise RuleError(f"rule {name}: unknown field {unknown[0]!r}")
        try:
            return cls(
                name,
                tuple(map(parse, _texts(data, "source"))),
                tuple(map(parse, _texts(data, "target"))),
                tuple(map(parse_term, _texts(data, "conditions"))),
                tuple(map(parse_term, _texts(data, "restrictions"))),
                str(data.get("verified_by", "")),
                data.get("may_change_nonfinite") is not False,
                data.get("may_lose_digits") is not False,
                tuple(_texts(data, "types", (FLOAT,))),
            )
        except ExpressionError as error:
            raise RuleError(f"rule {name}: {error}") from None

    def __str__(self) -> str:
        lines = [f"{self.name}:"]
        lines += [f"  {old}  =>  {new}" for old, new in zip(self.source, self.target, strict=True)]
        lines += [f"    if {one}" for one in self.conditions]
        lines += [f"    only where {one}" for one in self.restrictions]
        return "\n".join(lines)


def _texts(data: Mapping[str, Any], field: str, usual: Sequence[str] = ()) -> list[str]:
    found = data.get(field, list(usual))
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise RuleError(f"rule {data['name']}: {field} is no list of texts")
    return found


def _problems(rule: Rule) -> Iterator[str]:
    if not rule.source or len(rule.source) != len(rule.target):
        yield f"{len(rule.source)} expressions are replaced by {len(rule.target)}"
    for group in rule.types:
        if group not in GROUPS:
            yield f"expected types among {', '.join(GROUPS)}, found {group!r}"
    for one in rule.source:
        if not isinstance(one, Apply):
            yield f"its source {one} is no operator"
        yield from _source_problems(one)
    bound_variables = set(variables(*rule.source))
    bound_names = set(_bound_names(rule.source))
    later = (*rule.target, *rule.conditions, *rule.restrictions)
    for variable in variables(*later):
        if variable not in bound_variables:
            yield f"?{variable} is not in its source"
    for name in names(*rule.source, *later):
        if name not in bound_names:
            yield f"${name} is bound nowhere in its source"
    for given in (*rule.source, *later):
        for part in parts(given):
            yield from _part_problems(part)
    for one in rule.source:
        if any(one != other and one in tuple(parts(other)) for other in rule.source):
            yield f"{one} is a part of another source"
    if len(set(rule.source)) < len(rule.source):
        yield "it replaces one expression twice"
    yield from _connection_problems(rule.source)


def _source_problems(source: Part) -> Iterator[str]:
    for part in parts(source):
        if isinstance(part, Array) and (part.function != "full" or len(part.arguments) != 1):
            yield f"{part} in a source: expected (full VALUE)"


def _bound_names(source: tuple[Expression, ...]) -> Iterator[str]:
    """Yield the names that a source binds: those that are an attribute, or an element of a list."""
    for part in (part for one in source for part in parts(one)):
        values: tuple[Any, ...] = ()
        if isinstance(part, Apply):
            values = tuple(value for _, value in part.attributes)
        elif isinstance(part, Array):
            values = part.arguments
        for value in values:
            inside = value.arguments if _is_list(value) else (value,)
            yield from (one.name for one in inside if isinstance(one, Name))


def _is_list(value: Any) -> bool:
    return isinstance(value, Call) and value.function == "list"


def _part_problems(part: Part) -> Iterator[str]:
    if isinstance(part, Array) and part.function not in ARRAYS:
        yield f"no array is called {part.function!r}"
    if not isinstance(part, Call):
        return
    function = FUNCTIONS.get(part.function)
    if function is None:
        yield f"no function is called {part.function!r}"
        return
    fewest, most = function.num_arguments
    if not fewest <= len(part.arguments) <= most:
        yield f"{part}: {len(part.arguments)} arguments of {part.function}"
    if not function.takes_tensors and any(isinstance(one, Variable) for one in part.arguments):
        yield f"{part}: a tensor is no argument of {part.function}"


def _connection_problems(source: tuple[Expression, ...]) -> Iterator[str]:
    """Report an expression of the source that shares no variable with the others.

    Without a shared variable, it could be anywhere in a graph.
    """
    reached = set(variables(source[0])) if source else set()
    rest = list(source[1:])
    while rest:
        near = [one for one in rest if reached & set(variables(one))]
        if not near:
            yield f"{rest[0]} shares no variable with the rest of its source"
            return
        for one in near:
            reached |= set(variables(one))
            rest.remove(one)
