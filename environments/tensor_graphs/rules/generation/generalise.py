"""Turn pairs of expressions that were equal in a few worlds into rules, with conditions if needed.

Conditions are learned from instances. They must exclude all instances in which the rule would be
wrong, and should admit those in which it is right. The conditions that admit the most instances are
taken.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from environments.tensor_graphs.rules.generation.enumerate import Candidate, World
from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Call,
    Expression,
    Term,
    Variable,
    parse_term,
    parts,
    substitute,
    variables,
)
from environments.tensor_graphs.rules.language.rule import Rule, RuleError, with_computed_attributes
from environments.tensor_graphs.rules.language.terms import holds
from environments.tensor_graphs.rules.verification.instances import Instance, InstanceDrawer
from environments.tensor_graphs.rules.verification.verify import needs, problem_in, verify

_MOST_CONDITIONAL_SIZE = 2
_NUM_INSTANCES = 240
_LEAST_RIGHT = 8
_LEAST_SHARE = 0.1
_FLOATS = '(list "bfloat16" "float16" "float32" "float64")'
_VARIABLE = re.compile(r"\?\w+")


def is_source(expression: Expression) -> bool:
    """Return whether an expression can be matched: its attributes are names, literals or lists."""
    return isinstance(expression, Apply) and all(
        not isinstance(part, Call) or part.function == "list"
        for part in parts(as_source(expression))
    )


def as_source(expression: Expression) -> Expression:
    """Turn a target into a source: drop the shape and type of its constants."""
    arrays = (part for part in parts(expression) if isinstance(part, Array))
    return substitute(
        expression, {part: Array(part.function, part.arguments[:1]) for part in arrays}
    )


def as_target(expression: Expression) -> Expression:
    """Turn a source into a target: make its constants scalars with the first variable's type."""
    typed = Call("list", ()), Call("dtype", (Variable(variables(expression)[0]),))
    arrays = (part for part in parts(expression) if isinstance(part, Array))
    numbers = (part for part in arrays if len(part.arguments) == 1)
    return substitute(
        expression, {part: Array(part.function, (*part.arguments, *typed)) for part in numbers}
    )


def make_rule(
    sources: Sequence[Expression], targets: Sequence[Expression], is_named: bool = False
) -> Rule | None:
    """Return the rule that replaces some expressions by others; None if they make no rule.

    With `is_named`, attributes that a source computes become names, with conditions that say what
    is computed. Without, there is no such rule.
    """
    try:
        rule = Rule("new", tuple(map(as_source, sources)), tuple(targets))
        if is_named:
            # A variable that only an attribute mentions is no longer in the source then.
            rule = with_computed_attributes(rule)
    except RuleError:
        return None
    return rule if all(map(is_source, rule.source)) else None


class Proposal(NamedTuple):
    """A rule that may be right.

    Attributes:
      rule: the rule.
      size: number of operators in the larger of its two expressions.
      worlds: worlds in which the two expressions were equal; empty for rules that merge outputs.
      sides: its two expressions, with all attributes and constants as targets have them.
      reverse: the same rule in the other direction, if that is wanted too and can be expressed.
    """

    rule: Rule
    size: int
    worlds: tuple[World, ...]
    sides: tuple[Expression, ...] = ()
    reverse: Rule | None = None


def make_proposals(
    candidates: Sequence[Candidate],
    worlds: Sequence[World],
    counts: collections.Counter[str],
    is_exhaustive: bool,
) -> Iterator[Proposal]:
    """Yield the rules that candidates may become; count what becomes of the others."""
    texts: set[str] = set()
    for candidate in candidates:
        counts["candidates"] += 1
        if is_exhaustive:
            # There are many, so renamings go before rules are made.
            text = _text(candidate)
            if text in texts:
                counts["renamings"] += 1
                continue
            texts.add(text)
        if not (_is_certain(candidate) if is_exhaustive else _is_worth_it(candidate)):
            counts["not considered"] += 1
            continue
        pairs = zip(candidate.larger.prints, candidate.smaller.prints, strict=True)
        are_equal = [left is not None and left == right for left, right in pairs]
        alike = tuple(itertools.compress(worlds, are_equal))
        directions = [(candidate.larger, candidate.smaller)]
        if is_exhaustive or candidate.larger.size == candidate.smaller.size:
            directions.append((candidate.smaller, candidate.larger))
        rules = [
            make_rule([old.expression], [new.expression], is_exhaustive) for old, new in directions
        ]
        size = candidate.larger.size
        sides = candidate.larger.expression, candidate.smaller.expression
        right = list(filter(None, rules))
        if not right:
            counts["not expressible"] += 1
        elif is_exhaustive:
            yield Proposal(right[0], size, alike, sides, right[1] if right[1:] else None)
        else:
            for rule in right:
                # Constants in a source lack the shape and type that a world needs.
                yield Proposal(rule, size, alike, (as_target(rule.source[0]), rule.target[0]))
    yield from _merges(candidates)


def _text(candidate: Candidate) -> str:
    """Return the two expressions with their variables numbered in order of their first mention."""
    numbers: dict[str, str] = {}
    return _VARIABLE.sub(
        lambda match: numbers.setdefault(match[0], f"?{len(numbers)}"),
        f"{candidate.larger.expression} = {candidate.smaller.expression}",
    )


def _is_certain(candidate: Candidate) -> bool:
    """Return whether two expressions are equal wherever both have values, or small."""
    return candidate.always or candidate.larger.size <= _MOST_CONDITIONAL_SIZE


def _is_worth_it(candidate: Candidate) -> bool:
    """Return whether a candidate may become a useful rule.

    A candidate with constants is useful only if its larger side is a single operator, such as
    x + 0. If both sides have the same size, they must be small and mention each variable once. The
    sides of a large candidate must be equal in every world in which both have values; it must also
    become much smaller or have more than two variables.
    """
    sides = (candidate.larger.expression, candidate.smaller.expression)
    if any(isinstance(part, Array) for side in sides for part in parts(side)):
        return candidate.larger.size == 1
    if candidate.smaller.size == candidate.larger.size:
        mentioned = [[part for part in parts(side) if isinstance(part, Variable)] for side in sides]
        is_repeated = any(len(set(mentions)) < len(mentions) for mentions in mentioned)
        if is_repeated or candidate.larger.size > 2:
            return False
    if candidate.larger.size <= _MOST_CONDITIONAL_SIZE:
        return True
    return candidate.always and (candidate.smaller.size < 2 or len(variables(*sides)) > 2)


def _merges(candidates: Sequence[Candidate]) -> Iterator[Proposal]:
    """Yield rules that replace two expressions at once, by the two outputs of one Split."""
    halves: dict[Expression, dict[int, Candidate]] = {}
    for candidate in candidates:
        split = candidate.larger.expression
        if isinstance(split, Apply) and split.op == "Split":
            first = dataclasses.replace(split, output=0)
            halves.setdefault(first, {}).setdefault(split.output, candidate)
    for outputs in halves.values():
        if len(outputs) < 2:
            continue
        old = [outputs[output].smaller.expression for output in (0, 1)]
        new = [outputs[output].larger.expression for output in (0, 1)]
        if any(isinstance(expression, Variable) for expression in old) or old[0] == old[1]:
            continue
        if "Split" in operators_of(old):
            continue
        rule = make_rule(old, new)
        if rule is not None:
            yield Proposal(rule, outputs[0].larger.size, ())


def operators_of(expressions: Sequence[Expression]) -> list[str]:
    """Return the names of all operators of some expressions, the outermost first."""
    return [part.op for root in expressions for part in parts(root) if isinstance(part, Apply)]


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
        if needs(rule, condition, 10 * num_instances, seed):
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
