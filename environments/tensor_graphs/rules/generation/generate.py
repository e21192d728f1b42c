"""Generate rules: enumerate, fingerprint, generalise, prune, verify (thesis, section 3.1).

The thesis takes TASO's way: enumerate graphs of few operators, compare hashes of their values,
verify, prune renamings and common subgraphs. It differs here:

- TASO compares all outputs of two graphs. Here expressions have one output; only halves of a Split
  are put together to rules that replace two expressions.
- TASO computes in one world of fixed shapes. Here there are several, and two expressions that are
  equal in some of them may become a rule under a condition.
- Larger expressions are built from the first of equal ones only. That prunes more than TASO does,
  and so does a step that the thesis lacks: rules that others imply are dropped.
- TASO proves rules with a theorem prover, from axioms. Here they are tested; see `verification`.
- By default only what may be a useful rule is considered, mostly in the direction that shrinks a
  graph, and a rule must remove an operator to be allowed to change NaN. An exhaustive vocabulary
  (`taso_operators`) considers all pairs, in both directions, whatever becomes of NaN.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence

from environments.tensor_graphs.rules.generation.enumerate import Enumeration
from environments.tensor_graphs.rules.generation.generalise import (
    Proposal,
    find_conditions,
    make_proposals,
    operators_of,
    without_needless,
)
from environments.tensor_graphs.rules.generation.prune import Rewriter, canonical, without_common
from environments.tensor_graphs.rules.generation.vocabularies import Vocabulary
from environments.tensor_graphs.rules.language.expressions import parse_term, parts
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
_OFTEN = 0.2
_WORLDS_TO_REWRITE = 3
_DEPTHS = {1: 2}
_MOST_DEPTH = 3


class Generator:
    """Generates rules, vocabulary by vocabulary.

    Args:
      max_size: largest number of operators in an expression; by default that of the vocabulary.
      rules: rules that exist already; rules that they imply are not generated.

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
        vocabularies: Sequence[Vocabulary],
        progress_fn: Callable[[str], None] = lambda text: None,
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
            # General and short rules come first, so that they imply the special ones that follow;
            # nothing implies those that replace several expressions, and what depends on where
            # a Split cuts is mostly of little use.
            proposals = sorted(
                make_proposals(enumeration.candidates, worlds, counts, vocabulary.is_exhaustive),
                key=lambda new: (
                    new.size,
                    vocabulary.is_exhaustive and (-len(new.rule.source), len(new.rule.conditions)),
                    -len(new.rule.variables),
                    len(str(new.rule)),
                ),
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
        if not _WINDOWS & set(operators_of(rule.source)):
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
        grows = len(operators_of(rule.target)) >= len(operators_of(rule.source))
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
            "_".join(op.lower() for op in operators_of(side)) for side in (rule.source, rule.target)
        ]
        name = "_to_".join(side or "nothing" for side in sides)
        taken = {rule.name for rule in self._known}
        options = (name, *(f"{name}_{number}" for number in range(2, len(taken) + 3)))
        return next(option for option in options if option not in taken)


def _with_ranks(rule: Rule, ranks: Mapping[str, int]) -> Rule:
    conditions = tuple(
        parse_term(f"(= (rank ?{name}) {ranks[name]})") for name in rule.variables if name in ranks
    )
    return dataclasses.replace(rule, conditions=(*rule.conditions, *conditions))


def _applies_often(rule: Rule, seed: int) -> bool:
    """Return whether source and target have the same types in enough random instances of a source.

    If not, the rule holds for degenerate shapes only.
    """
    drawer = InstanceDrawer(rule, seed)
    drawn = filter(None, (drawer.draw() for _ in range(_FEW)))
    return sum(bool(instance.targets) for instance in drawn) >= _OFTEN * _FEW
