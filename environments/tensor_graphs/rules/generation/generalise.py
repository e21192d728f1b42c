"""Turn two expressions that were equal in a few worlds into a rule, with conditions if needed.

Conditions are learned from instances. They must exclude all instances in which the rule would be
wrong, and should admit those in which it is right. The conditions that admit the most instances are
taken.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Call,
    Expression,
    ExpressionError,
    Literal,
    Name,
    Term,
    Variable,
    parse_term,
    parts,
    variables,
)
from environments.tensor_graphs.rules.language.rule import Rule, RuleError
from environments.tensor_graphs.rules.language.terms import holds
from environments.tensor_graphs.rules.verification.instances import Instance, InstanceDrawer
from environments.tensor_graphs.rules.verification.verify import needs, problem_in, verify

_NUM_INSTANCES = 240
_LEAST_RIGHT = 8
_LEAST_SHARE = 0.1
_FLOATS = '(list "bfloat16" "float16" "float32" "float64")'


def is_source(expression: Expression) -> bool:
    """Return whether an expression can be matched: its attributes are names, literals or lists."""
    return isinstance(expression, Apply) and all(
        isinstance(part, (Variable, Literal, Name, Apply, Array)) or part.function == "list"
        for part in parts(as_source(expression))
    )


def as_source(expression: Expression) -> Expression:
    """Turn a target into a source: drop the shape and type of its constants."""
    if isinstance(expression, Array):
        return Array(expression.function, expression.arguments[:1])
    if isinstance(expression, Apply):
        return expression.with_inputs(as_source)
    return expression


def as_target(expression: Expression) -> Expression:
    """Turn a source into a target: make its constants scalars with the first variable's type."""
    first = Variable(variables(expression)[0])
    if isinstance(expression, Array):
        return expression

    def complete(part: Expression) -> Expression:
        if isinstance(part, Array) and len(part.arguments) == 1:
            shape, dtype = Call("list", ()), Call("dtype", (first,))
            return Array(part.function, (part.arguments[0], shape, dtype))
        return part.with_inputs(complete) if isinstance(part, Apply) else part

    return complete(expression)


def make_rule(
    name: str, sources: Sequence[Expression], targets: Sequence[Expression], is_named: bool = False
) -> Rule | None:
    """Return the rule that replaces some expressions by others; None if they make no rule.

    Args:
      name: its name.
      sources: what is replaced.
      targets: what replaces them.
      is_named: whether the attributes that a source computes become names, with conditions that say
        what is computed. Without, there is no such rule.
    """
    conditions: tuple[Term, ...] = ()
    if is_named:
        sources, conditions = _with_names(sources)
    if not all(map(is_source, sources)):
        return None
    try:
        return Rule(name, tuple(map(as_source, sources)), tuple(targets), conditions)
    except (RuleError, ExpressionError):
        return None


def _with_names(sources: Sequence[Expression]) -> tuple[list[Expression], tuple[Term, ...]]:
    """Return sources with names in place of computed terms, and what each name must equal."""
    names: dict[Term, Name] = {}

    def name(term: Any) -> Any:
        if not isinstance(term, Call):
            return term
        return names.setdefault(term, Name(f"computed{len(names)}"))

    def attribute(term: Term) -> Term:
        if isinstance(term, Call) and term.function == "list":
            return Call("list", tuple(map(name, term.arguments)))
        return name(term)

    def named(expression: Expression) -> Expression:
        if not isinstance(expression, Apply):
            return expression
        attributes = tuple((key, attribute(term)) for key, term in expression.attributes)
        return dataclasses.replace(expression.with_inputs(named), attributes=attributes)

    named_sources = [named(source) for source in sources]
    return named_sources, tuple(Call("=", (new, term)) for term, new in names.items())


def find_conditions(rule: Rule, seed: int = 0, num_instances: int = _NUM_INSTANCES) -> Rule | None:
    """Add conditions to a rule so that it is right in all instances drawn.

    Returns:
      The rule with conditions, or without if it is right in all instances. None if none of the
      conditions tried makes the rule right, or if too few instances are right.
    """
    drawer = InstanceDrawer(rule, seed)
    rng = np.random.default_rng([seed, 3])
    right: list[Instance] = []
    wrong: list[Instance] = []
    while len(right) + len(wrong) < num_instances:
        instances = drawer.draw_round()
        if not instances:
            break
        for instance in instances:
            count = len(right) + len(wrong)
            (wrong if problem_in(instance, rng, count) else right).append(instance)
    if not wrong:
        return rule if right else None
    if len(right) < max(_LEAST_RIGHT, _LEAST_SHARE * (len(right) + len(wrong))):
        return None
    best = _best(rule, right, wrong)
    return None if best is None else dataclasses.replace(rule, conditions=(*rule.conditions, *best))


def without_needless(rule: Rule, num_instances: int, seed: int = 0) -> Rule:
    """Return a rule without the conditions that it does not need to be right.

    Often a condition is implied by the types that an operator takes, or by the type that a new
    output must have.
    """
    for condition in rule.conditions:
        if needs(rule, condition, 10 * num_instances, seed) is not None:
            continue
        others = tuple(term for term in rule.conditions if term != condition)
        wider = dataclasses.replace(rule, conditions=others)
        if all(verify(wider, 5 * num_instances, seed + more).is_right for more in (1, 2)):
            rule = wider
    return rule


def _best(
    rule: Rule, right: Sequence[Instance], wrong: Sequence[Instance]
) -> tuple[Term, ...] | None:
    """Return the one or two conditions that exclude all wrong instances and keep most right ones.

    One condition is preferred to two. The result is None if no conditions keep enough instances.
    """
    # Of conditions that hold in the same instances, the simplest counts, which comes first.
    terms: dict[tuple[frozenset[int], frozenset[int]], Term] = {}
    for term in map(parse_term, (*_of_tensors(rule), *_of_attributes(rule, right[0]))):
        admitted, let_in = (
            frozenset(n for n, instance in enumerate(instances) if holds(term, instance.bindings))
            for instances in (right, wrong)
        )
        if len(admitted) >= _LEAST_RIGHT and len(let_in) < len(wrong):
            terms.setdefault((admitted, let_in), term)
    for count in (1, 2):
        best: tuple[Term, ...] | None = None
        most = _LEAST_RIGHT - 1
        for keys in itertools.combinations(terms, count):
            admitted, let_in = map(frozenset.intersection, *keys) if count > 1 else keys[0]
            if not let_in and len(admitted) > most:
                best, most = tuple(terms[key] for key in keys), len(admitted)
        if best is not None:
            return best
    return None


def _of_tensors(rule: Rule) -> Iterator[str]:
    variables = [f"?{name}" for name in rule.variables]
    for tensor in variables:
        yield f"(in (dtype {tensor}) {_FLOATS})"
        yield f"(>= (rank {tensor}) 2)"
        yield f"(= (size {tensor}) 1)"
        yield from (f"(= (rank {tensor}) {rank})" for rank in (0, 1, 2, 3, 4))
        yield from (f"(= (dim {tensor} {place}) 1)" for place in (0, 1, -1))
    for tensor, partner in itertools.permutations(variables, 2):
        yield f"(= (shape {tensor}) (shape {partner}))"
        yield f"(= (rank {tensor}) (rank {partner}))"
        yield f"(<= (rank {tensor}) (rank {partner}))"
        for place in (0, 1, -1):
            yield f"(= (dim {tensor} {place}) (dim {partner} {place}))"


def _of_attributes(rule: Rule, instance: Instance) -> Iterator[str]:
    attributes = instance.bindings.attributes
    for name in rule.names:
        value = attributes[name]
        if isinstance(value, tuple):
            yield f"(= ${name} (range 0 (length ${name})))"
            yield f"(= ${name} (repeat 0 (length ${name})))"
            yield f"(= ${name} (repeat 1 (length ${name})))"
            yield from (f"(= ${name} (shape ?{variable}))" for variable in rule.variables)
        elif isinstance(value, int):
            yield f"(= ${name} 1)"
            yield f"(= ${name} 0)"
            yield from (f"(= ${name} (- (rank ?{variable}) 1))" for variable in rule.variables)
        elif isinstance(value, float):
            yield f"(> ${name} 0)"
            yield f"(>= ${name} 0)"
    for name, partner in itertools.permutations(rule.names, 2):
        if type(attributes[name]) is not type(attributes[partner]):
            continue
        yield f"(= ${name} ${partner})"
        if isinstance(attributes[name], tuple):
            yield f"(= ${name} (inverse ${partner}))"
