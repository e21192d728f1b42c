"""A notation for writing rules in Python, close to mathematics.

  @rule
  def scale_into_weight(x, w: Constant, s: Scalar):
      return (x @ w) * s, x @ (w * s)

  @rule
  def transposed_twice(x, p: Attribute, q: Attribute):
      return op.Transpose(op.Transpose(x, perm=p), perm=q), op.Transpose(x, perm=permute(p, q))

The function is called once, with symbols for tensors and attributes. It returns the source and the
target, each an expression or a tuple of them, and then the conditions:

  @rule
  def add_is_associative_here(x, y, z):
      return (x + y) + z, x + (y + z), y.shape == z.shape

A parameter may be annotated: Constant is a tensor that depends on constants alone (a restriction);
Scalar is a tensor with one element (a condition); ConstantScalar is both; Attribute is an attribute
of an operator. A condition in `only_where` is a restriction: it says where the rule is worth
trying, not where it is right.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Call,
    Expression,
    Name,
    Term,
    Variable,
    variables,
)
from environments.tensor_graphs.rules.language.rule import Rule, RuleError
from environments.tensor_graphs.rules.language.symbols import (
    Quantity,
    Tensor,
    all_of,
    any_of,
    array,
    broadcast,
    call,
    concat,
    no,
    numbers,
    op,
    permute,
    product,
    repeat,
    total,
)

__all__ = [
    "Attribute", "Constant", "ConstantScalar", "Quantity", "Restriction", "Scalar", "Tensor",
    "all_of", "any_of",
    "array", "broadcast", "call", "concat", "make_rule", "no", "numbers", "only_where", "op",
    "permute", "product", "repeat", "rule", "rules_in", "total",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Restriction:
    """A condition that does not affect whether the rule is right, only where it is tried."""

    condition: Quantity


def only_where(condition: Quantity) -> Restriction:
    """Restrict a rule to the places where a condition holds."""
    return Restriction(condition)


# Annotations of parameters.
class Constant(Tensor):
    """A tensor that depends on constants alone: a restriction."""


class Scalar(Tensor):
    """A tensor with one element."""


class ConstantScalar(Tensor):
    """A tensor with one element that depends on constants alone."""


class Attribute(Quantity):
    """An attribute of an operator in the source."""


_KINDS = {kind.__name__: kind for kind in (Constant, Scalar, ConstantScalar, Attribute)}


def rule(function: Callable[..., Any]) -> Rule:
    """Make the rule that a function describes; used as a decorator.

    Raises:
      RuleError: the function does not describe a rule.
    """
    conditions: list[object] = []
    arguments: list[object] = []
    for parameter in inspect.signature(function).parameters.values():
        kind = _kind(function.__name__, parameter)
        if kind is Attribute:
            arguments.append(Quantity(Name(parameter.name)))
            continue
        tensor = Tensor(Variable(parameter.name))
        arguments.append(tensor)
        if kind in (Scalar, ConstantScalar):
            conditions.append(tensor.size == 1)
        if kind in (Constant, ConstantScalar):
            conditions.append(only_where(tensor.is_constant))
    returned = function(*arguments)
    if not isinstance(returned, tuple) or len(returned) < 2:
        raise RuleError(f"rule {function.__name__}: expected it to return a source and a target")
    source, target, *more = returned
    return make_rule(function.__name__, source, target, *conditions, *more)


def _kind(name: str, parameter: inspect.Parameter) -> type | None:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return None
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    kind = _KINDS.get(text.rpartition(".")[2])
    if kind is None:
        raise RuleError(f"rule {name}: expected one of {', '.join(_KINDS)}, found {text}")
    return kind


def make_rule(name: str, source: object, target: object, *conditions: object) -> Rule:
    """Make a rule from its parts.

    Args:
      name: name of the rule.
      source: a Tensor, or a tuple or list of several.
      target: what replaces the source: as many Tensors.
      *conditions: Quantities for conditions, Restrictions for restrictions.

    Raises:
      RuleError: the parts make no rule.
    """
    sources = _expressions(name, source)
    needed = tuple(_condition(name, one) for one in conditions if not isinstance(one, Restriction))
    restrictions = tuple(one.condition.term for one in conditions if isinstance(one, Restriction))
    targets = tuple(_with_dtypes(one, sources) for one in _expressions(name, target))
    return Rule(name, sources, targets, needed, restrictions)


def rules_in(module: types.ModuleType | Mapping[str, Any]) -> tuple[Rule, ...]:
    """Return all rules among a module's values and in its lists, in the order of definition."""
    found: dict[str, Rule] = {}
    for value in (module if isinstance(module, Mapping) else vars(module)).values():
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(one, Rule):
                found.setdefault(one.name, one)
    return tuple(found.values())


def _expressions(name: str, given: object) -> tuple[Expression, ...]:
    several: Iterable[object] = given if isinstance(given, (tuple, list)) else (given,)
    found = []
    for one in several:
        if not isinstance(one, Tensor):
            raise RuleError(f"rule {name}: expected an expression of tensors, found {one!r}")
        found.append(one.expression)
    return tuple(found)


def _condition(name: str, given: object) -> Term:
    if not isinstance(given, Quantity):
        raise RuleError(f"rule {name}: expected a condition, found {given!r}")
    return given.term


def _with_dtypes(expression: Expression, source: Sequence[Expression]) -> Expression:
    """Give numbers in a target the element type of a variable that they are computed with."""
    if not isinstance(expression, Apply):
        return expression
    near = variables(*expression.inputs) or variables(*source)
    inputs = []
    for one in expression.inputs:
        if isinstance(one, Array) and one.function == "full" and len(one.arguments) == 1:
            dtype = Call("dtype", (Variable(near[0]),))
            one = Array("full", (*one.arguments, Call("list", ()), dtype))
        inputs.append(None if one is None else _with_dtypes(one, source))
    return dataclasses.replace(expression, inputs=tuple(inputs))
