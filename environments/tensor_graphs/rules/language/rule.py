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

A rule is right for a whole group of element types, or not for it. Numbers of floating-point types
behave almost like real numbers. Integers wrap around, and their quotients are cut, so that few
equalities of real numbers hold for them; unsigned ones have no negatives. What is no number, such
as a truth value or a text, is only moved and chosen.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
    children,
    names,
    parse,
    parse_term,
    parts,
    substitute,
    variables,
)
from environments.tensor_graphs.rules.language.terms import ARRAYS, FUNCTIONS, takes

FLOAT, SIGNED, UNSIGNED, OTHER = GROUPS = ("float", "signed", "unsigned", "other")

_PREFIXES = {"float": FLOAT, "bfloat": FLOAT, "int": SIGNED, "uint": UNSIGNED}

# Inputs of operators whose element type differs from that of the others.
_SPECIAL = {
    ("Where", 0): "bool",
    ("Gather", 1): "int64",
    **{(op, place): "bool" for op in ("And", "Or", "Xor", "Not") for place in (0, 1)},
}

_VERIFIED = ("verified_by", "may_change_nonfinite", "may_lose_digits", "types")
_PARTS = ("source", "target", "conditions", "restrictions")


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
        terms = (term for term in self.restrictions if isinstance(term, Call))
        return frozenset(variables(*[term for term in terms if term.function == "constant"]))

    @functools.cached_property
    def only_removes(self) -> bool:
        """Whether the target computes a part of what the source computes, and nothing else.

        What is computed from constants alone does not count: it costs nothing when the model runs.
        """
        return self._computed(self.target) < self._computed(self.source)

    def _computed(self, roots: Iterable[Expression]) -> collections.Counter[str]:
        """Count the operators that are computed when the model runs; equal parts count once."""
        terms = {part for root in roots for part in parts(root) if isinstance(part, Apply)}
        return collections.Counter(
            term.op for term in terms if not self.constants.issuperset(variables(term))
        )

    @property
    def verification(self) -> dict[str, Any]:
        """What verification says of the rule, as fields for JSON; see `as_verified`."""
        return {name: getattr(self, name) for name in _VERIFIED} | {"types": list(self.types)}

    def as_verified(self, verification: Mapping[str, Any]) -> Rule:
        """Return this rule with the verification of an equal rule."""
        rule = copy.copy(self)
        # No dataclasses.replace, which would look for problems again: all of them are in the parts.
        vars(rule).update({name: verification[name] for name in _VERIFIED})
        vars(rule).update(types=tuple(verification["types"]))
        return rule

    def as_dict(self) -> dict[str, Any]:
        """Return the rule as a JSON object."""
        return {
            "name": self.name,
            **{field: [*map(str, getattr(self, field))] for field in _PARTS},
            **self.verification,
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
        unknown = sorted(set(data) - {"name", *_PARTS, *_VERIFIED})
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
        lines += [f"    if {condition}" for condition in self.conditions]
        lines += [f"    only where {restriction}" for restriction in self.restrictions]
        return "\n".join(lines)


def _texts(data: Mapping[str, Any], field: str, usual: Sequence[str] = ()) -> list[str]:
    texts = data.get(field, list(usual))
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RuleError(f"rule {data['name']}: {field} is no list of texts")
    return texts


def _problems(rule: Rule) -> Iterator[str]:
    if not rule.source or len(rule.source) != len(rule.target):
        yield f"{len(rule.source)} expressions are replaced by {len(rule.target)}"
    for group in rule.types:
        if group not in GROUPS:
            yield f"expected types among {', '.join(GROUPS)}, found {group!r}"
    for source in rule.source:
        if not isinstance(source, Apply):
            yield f"its source {source} is no operator"
    later = (*rule.target, *rule.conditions, *rule.restrictions)
    before = [part for root in rule.source for part in parts(root)]
    after = [part for root in later for part in parts(root)]
    for part in before:
        if isinstance(part, Array) and (part.function != "full" or len(part.arguments) != 1):
            yield f"{part} in a source: expected (full VALUE)"
    bound = {part for part in before if isinstance(part, Variable)}
    for part in after:
        if isinstance(part, Variable) and part not in bound:
            yield f"{part} is not in its source"
    bound_names = {element for part in before for element in _elements(part)}
    for part in (*before, *after):
        if isinstance(part, Name) and part not in bound_names:
            yield f"{part} is bound nowhere in its source"
    for part in (*before, *after):
        yield from _part_problems(part)
    for source in rule.source:
        if any(source != root and source in tuple(parts(root)) for root in rule.source):
            yield f"{source} is a part of another source"
    if len(set(rule.source)) < len(rule.source):
        yield "it replaces one expression twice"
    yield from _connection_problems(rule.source)


def _elements(part: Part) -> Iterator[Any]:
    """Yield what an operator or a constant is made of; of a list, its elements."""
    inside: Any = children(part) if isinstance(part, (Apply, Array)) else ()
    for value in inside:
        is_list = isinstance(value, Call) and value.function == "list"
        yield from value.arguments if is_list else (value,)


def _part_problems(part: Part) -> Iterator[str]:
    if isinstance(part, Array) and part.function not in ARRAYS:
        yield f"no array is called {part.function!r}"
    if not isinstance(part, Call):
        return
    function = FUNCTIONS.get(part.function)
    if function is None:
        yield f"no function is called {part.function!r}"
        return
    if not takes(function, len(part.arguments)):
        yield f"{part}: {len(part.arguments)} arguments of {part.function}"
    if not function.takes_tensors and any(
        isinstance(argument, Variable) for argument in part.arguments
    ):
        yield f"{part}: a tensor is no argument of {part.function}"


def _connection_problems(source: tuple[Expression, ...]) -> Iterator[str]:
    """Report an expression of the source that shares no variable with the others.

    Without a shared variable, it could be anywhere in a graph.
    """
    reached = set(variables(source[0])) if source else set()
    rest = list(source[1:])
    while rest:
        near = [expression for expression in rest if reached & set(variables(expression))]
        if not near:
            yield f"{rest[0]} shares no variable with the rest of its source"
            return
        for expression in near:
            reached |= set(variables(expression))
            rest.remove(expression)


class FusedChain(NamedTuple):
    """A chain of operators that a backend runs as one kernel.

    Attributes:
      rule: the chain, and what stands for the kernel; not for rewriting.
      slowness: how many times longer the kernel takes than the dearest operator of the chain.
    """

    rule: Rule
    slowness: float = 1.0


def with_computed_attributes(rule: Rule) -> Rule:
    """Turn computed attributes of a rule's source into conditions.

    Where the source gives an attribute, or an element of one, as a call such as (+ $a 1), the
    returned rule binds it to a new name, and has a condition that the name equals the call.
    """
    computed: dict[Any, Any] = {}
    for part in (part for root in rule.source for part in parts(root)):
        for element in _elements(part) if isinstance(part, Apply) else ():
            if isinstance(element, Call):
                computed.setdefault(element, Name(f"computed{len(computed)}"))
    if not computed:
        return rule
    source = tuple(substitute(root, computed) for root in rule.source)
    conditions = tuple(Call("=", (name, term)) for term, name in computed.items())
    return dataclasses.replace(rule, source=source, conditions=(*rule.conditions, *conditions))


def group_of(dtype: str) -> str:
    """Return the group of an element type, by its name ("float32", "uint8")."""
    return _PREFIXES.get(dtype.rstrip("0123456789"), FLOAT if dtype.startswith("float") else OTHER)


def special_types(sources: Sequence[Expression]) -> dict[str, str]:
    """Return the variables that have an element type of their own, with that type.

    Examples are the condition of Where and the indices of Gather.
    """
    return {
        operand.name: _SPECIAL[part.op, place]
        for source in sources
        for part in parts(source)
        if isinstance(part, Apply)
        for place, operand in enumerate(part.inputs)
        if isinstance(operand, Variable) and (part.op, place) in _SPECIAL
    }
