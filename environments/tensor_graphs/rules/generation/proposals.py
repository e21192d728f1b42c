"""Make proposals of rules from pairs of expressions that may be equal."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from environments.tensor_graphs.rules.generation.enumerate import Candidate, World
from environments.tensor_graphs.rules.generation.generalise import as_target, make_rule
from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Expression,
    Variable,
    parts,
    variables,
)
from environments.tensor_graphs.rules.language.rule import Rule

_MOST_CONDITIONAL_SIZE = 2
_VARIABLE = re.compile(r"\?\w+")


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
            make_rule("new", [old.expression], [new.expression], is_exhaustive)
            for old, new in directions
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
        rule = make_rule("new", old, new)
        if rule is not None:
            yield Proposal(rule, outputs[0].larger.size, ())


def operators_of(expressions: Sequence[Expression]) -> list[str]:
    """Return the names of all operators of some expressions, the outermost first."""
    return [part.op for root in expressions for part in parts(root) if isinstance(part, Apply)]
