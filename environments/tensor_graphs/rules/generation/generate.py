"""Generate rules: enumerate, fingerprint, generalise, prune, verify (thesis, section 3.1).

The thesis takes TASO's way: enumerate graphs of few operators, compare hashes of their values,
verify, prune renamings and common subgraphs. It differs here:

- TASO compares all outputs of two graphs. Here expressions have one output; only halves of a Split
  are put together to rules that replace two expressions.
- TASO computes in one world of fixed shapes. Here there are several, and two expressions that are
  equal in some of them may become a rule under a condition.
- Larger expressions are built from the first of equal ones only. That prunes more than TASO does,
  and so do two steps that the thesis lacks: rules that others imply are dropped, and so are those
  that hardly ever apply.
- TASO proves rules with a theorem prover, from axioms. Here they are tested; see `verification`.
- By default only what may be a useful rule is considered, mostly in the direction that shrinks a
  graph. An exhaustive vocabulary (`taso_operators`) considers all pairs, in both directions.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from environments.tensor_graphs.rules.generation.enumerate import Candidate, Enumeration
from environments.tensor_graphs.rules.generation.fingerprint import World
from environments.tensor_graphs.rules.generation.generalise import (
    as_target,
    find_conditions,
    make_rule,
    without_needless,
)
from environments.tensor_graphs.rules.generation.prune import Rewriter, canonical, without_common
from environments.tensor_graphs.rules.generation.vocabularies import VOCABULARIES
from environments.tensor_graphs.rules.generation.vocabulary import Vocabulary
from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Expression,
    Variable,
    parse_term,
    parts,
    variables,
)
from environments.tensor_graphs.rules.language.rule import Rule, RuleError
from environments.tensor_graphs.rules.verification.instances import InstanceDrawer
from environments.tensor_graphs.rules.verification.verify import needs, verify

STAGES = (
    "expressions", "candidates", "not considered", "not expressible", "known before", "renamings",
    "common subgraphs", "implied", "hardly apply", "refused", "conditions not needed",
    "change NaN and remove nothing", "rules",
)  # fmt: skip
_FEW, _FEWER = 60, 20
_WINDOWS = frozenset({"Conv", "AveragePool", "MaxPool", "Pad"})
_MOST_CONDITIONAL_SIZE = 2
_OFTEN = 0.2
_WORLDS_TO_REWRITE = 3
_VARIABLE = re.compile(r"\?\w+")
_DEPTHS = {1: 2}
_MOST_DEPTH = 3


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


class Generator:
    """Generates rules, vocabulary by vocabulary.

    Args:
      seed: seed of everything random.
      max_size: largest number of operators in an expression; by default that of the vocabulary.
      known: rules that exist already; rules that they imply are not generated.
      num_instances: number of instances in which a rule must be right.

    Attributes:
      rules: the rules that were found, right and new.
      counts: the counts of each of STAGES, by name of the vocabulary; of an exhaustive one also of
        its distinct expressions.
    """

    def __init__(
        self,
        seed: int = 0,
        max_size: int | None = None,
        rules: Sequence[Rule] = (),
        num_instances: int = 300,
    ) -> None:
        self.rules: list[Rule] = []
        self.counts: dict[str, collections.Counter[str]] = {}
        self._seed = seed
        self._max_size = max_size
        self._known = list(rules)
        self._num_instances = num_instances
        self._before = {canonical(rule) for rule in rules}
        self._seen = set(self._before)

    def run(
        self,
        vocabularies: Sequence[Vocabulary] = VOCABULARIES,
        progress_fn: Callable[[str], None] | None = None,
    ) -> list[Rule]:
        """Generate rules from each vocabulary; rules found in one are known in the next.

        Returns:
          All rules that were found, `rules`.
        """
        for vocabulary in vocabularies:
            counts = self.counts.setdefault(
                vocabulary.name, collections.Counter(dict.fromkeys(STAGES, 0))
            )
            size = min(vocabulary.max_size, self._max_size or vocabulary.max_size)
            worlds = vocabulary.worlds(self._seed)
            enumeration = Enumeration(worlds, vocabulary.leaves, vocabulary.moves, size)
            counts["expressions"] += enumeration.num_expressions
            if vocabulary.is_exhaustive:
                counts["distinct"] += enumeration.num_distinct
            # General and short rules come first, so that they imply the special ones that follow.
            proposals = sorted(
                _proposals(enumeration.candidates, worlds, counts, vocabulary.is_exhaustive),
                key=lambda new: (new.size, -len(new.rule.variables), len(str(new.rule))),
            )
            rewriters: dict[int, Rewriter] = {}
            for proposal in proposals:
                rule = self._consider(proposal, rewriters, counts, vocabulary)
                for right in (rule, rule and self._reversed(rule, proposal)):
                    if right is not None:
                        named = dataclasses.replace(right, name=self._name(right))
                        self.rules.append(named)
                        self._known.append(named)
                        counts["rules"] += 1
                        for rewriter in rewriters.values():
                            rewriter.add_rule(named)
            if progress_fn is not None:
                progress_fn(f"{vocabulary.name}: {dict(counts)}")
        return self.rules

    def _consider(
        self,
        proposal: Proposal,
        rewriters: dict[int, Rewriter],
        counts: collections.Counter[str],
        vocabulary: Vocabulary,
    ) -> Rule | None:
        """Return the proposed rule, with conditions if it needs them; None if not right and new."""
        rule = proposal.rule
        key = canonical(rule)
        if key in self._seen:
            counts["known before" if key in self._before else "renamings"] += 1
            self._before.discard(key)
            return None
        self._seen.add(key)
        if self._is_implied(proposal, rewriters):
            counts["implied"] += 1
            return None
        if vocabulary.is_exhaustive:
            return self._as_specified(rule, counts, vocabulary.ranks)
        verdict = verify(rule, _FEW, self._seed)
        if verdict.is_right and self._is_too_special(rule):
            counts["common subgraphs"] += 1
            return None
        if not _applies_often(rule, self._seed):
            counts["hardly apply"] += 1
            return None
        if not verdict.is_right:
            return self._with_conditions(rule, counts)
        return self._verified(rule, counts)

    def _reversed(self, rule: Rule, proposal: Proposal) -> Rule | None:
        """Return the other direction of a rule that is right; None if it cannot be used.

        It is the same equality under the same conditions, so that few instances are enough.
        """
        reverse = proposal.reverse
        if reverse is None or reverse.source[0] in parts(reverse.target[0]):
            return None
        self._seen.add(canonical(reverse))
        learned = [term for term in rule.conditions if term not in proposal.rule.conditions]
        try:
            reverse = dataclasses.replace(reverse, conditions=(*reverse.conditions, *learned))
        except RuleError:
            return None
        verdict = verify(reverse, _FEWER, self._seed)
        return verdict.mark(reverse) if verdict.is_right else None

    def _as_specified(
        self, rule: Rule, counts: collections.Counter[str], ranks: Mapping[str, int]
    ) -> Rule | None:
        """Return a right rule under conditions that TASO takes for granted, if it needs them.

        The ranks that the operators' specifications imply come first; then it is learned what is
        missing. In the end go the ranks that are not needed. Windows imply theirs in any case.
        """
        ranked = _with_ranks(rule, ranks)
        right: Rule | None = ranked
        if not verify(ranked, _FEWER, self._seed).is_right:
            right = find_conditions(ranked, self._seed, _FEW)
        if right is None:
            counts["refused"] += 1
            return None
        if not _WINDOWS & set(_operators(rule.source)):
            needed = [term for term in right.conditions if term not in ranked.conditions]
            free = dataclasses.replace(rule, conditions=(*rule.conditions, *needed))
            if verify(free, _FEW, self._seed).is_right:
                right = free
            else:
                right = without_needless(right, _FEWER, self._seed)
        if self._is_too_special(right, _FEWER):
            counts["common subgraphs"] += 1
            return None
        return self._verified(right, counts, True)

    def _with_conditions(self, rule: Rule, counts: collections.Counter[str]) -> Rule | None:
        conditional = find_conditions(rule, self._seed)
        if conditional is None or not conditional.conditions:
            counts["refused"] += 1
            return None
        if self._is_too_special(conditional):
            counts["common subgraphs"] += 1
            return None
        verified = self._verified(conditional, counts)
        if verified is None or all(
            needs(verified, condition, seed=self._seed) for condition in verified.conditions
        ):
            return verified
        counts["conditions not needed"] += 1
        return None

    def _is_too_special(self, rule: Rule, num_instances: int = _FEW) -> bool:
        """Whether a variable could take the place of an expression that both sides share."""
        return any(
            verify(wider, num_instances, self._seed).is_right for wider in without_common(rule)
        )

    def _verified(
        self, rule: Rule, counts: collections.Counter[str], may_change_nan: bool = False
    ) -> Rule | None:
        verdict = verify(rule, self._num_instances, self._seed + 1)
        if not verdict.is_right:
            counts["refused"] += 1
            return None
        grows = len(_operators(rule.target)) >= len(_operators(rule.source))
        if verdict.nonfinite_change and grows and not may_change_nan:
            counts["change NaN and remove nothing"] += 1
            return None
        return verdict.mark(rule)

    def _is_implied(self, proposal: Proposal, rewriters: dict[int, Rewriter]) -> bool:
        if len(proposal.rule.source) > 1 or not proposal.worlds:
            return False
        source, target = proposal.sides
        for world in proposal.worlds[:_WORLDS_TO_REWRITE]:
            rewriter = rewriters.get(id(world))
            if rewriter is None:
                rewriter = rewriters[id(world)] = Rewriter(world.bindings, self._known)
            if not rewriter.leads_to(source, target, _DEPTHS.get(proposal.size, _MOST_DEPTH)):
                return False
        return True

    def _name(self, rule: Rule) -> str:
        """Return a new name, made of the operators of both sides, the outermost first."""
        sides = [
            "_".join(op.lower() for op in _operators(side)) for side in (rule.source, rule.target)
        ]
        name = "_to_".join(side or "nothing" for side in sides)
        taken = {rule.name for rule in self._known}
        options = (name, *(f"{name}_{number}" for number in range(2, len(taken) + 3)))
        return next(option for option in options if option not in taken)


def _proposals(
    candidates: Sequence[Candidate],
    worlds: Sequence[World],
    counts: collections.Counter[str],
    is_exhaustive: bool,
) -> Iterator[Proposal]:
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


def _with_ranks(rule: Rule, ranks: Mapping[str, int]) -> Rule:
    """Return a rule on the condition that its variables have these ranks."""
    conditions = tuple(
        parse_term(f"(= (rank ?{name}) {ranks[name]})") for name in rule.variables if name in ranks
    )
    return dataclasses.replace(rule, conditions=(*rule.conditions, *conditions))


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


def _applies_often(rule: Rule, seed: int) -> bool:
    """Return whether source and target have the same types in enough random instances of a source.

    If not, the rule holds for degenerate shapes only.
    """
    drawer = InstanceDrawer(rule, seed)
    drawn = filter(None, (drawer.draw() for _ in range(_FEW)))
    return sum(bool(instance.targets) for instance in drawn) >= _OFTEN * _FEW


def _operators(expressions: Sequence[Expression]) -> list[str]:
    return [part.op for root in expressions for part in parts(root) if isinstance(part, Apply)]


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
        if "Split" in _operators(old):
            continue
        rule = make_rule("new", old, new)
        if rule is not None:
            yield Proposal(rule, outputs[0].larger.size, ())
