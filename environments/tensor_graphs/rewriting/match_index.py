"""All matches of rules in a graph, kept up to date as the graph changes.

A match depends on the nodes that its rule takes apart and on those that the variables stand for.
So only matches that replace a node a few edges above one that changed can come or go: the rest is
taken over. What else a match may depend on, whether nodes would depend on themselves, is asked of
the few that may make them do so.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import Change
from environments.tensor_graphs.rewriting.joins import Start
from environments.tensor_graphs.rewriting.matching import CompiledRule, Match, is_acyclic

_location = operator.attrgetter("location")

_Root = tuple[str, int]
"""An operator and its number of inputs."""

_RuleStart = tuple[CompiledRule, Start]


@dataclasses.dataclass(frozen=True, slots=True)
class _Of:
    """Matches of one rule.

    Attributes:
      found: by location, those among them that would have a node depend on itself.
      valid: the others.
      replaced: all nodes that they replace.
      need_check: whether some of them may become valid, or cease to be, by what happens elsewhere.
    """

    found: tuple[Match, ...] = ()
    valid: tuple[Match, ...] = ()
    replaced: frozenset[int] = frozenset()
    need_check: bool = False


_NONE = _Of()


class Starts:
    """Where to begin looking for which rules, by operator.

    Attributes:
      depth: of the deepest rule.
    """

    def __init__(self, rules: Iterable[CompiledRule]) -> None:
        """Sorts the rules' patterns.

        Args:
          rules: the rules.
        """
        self._plain: dict[_Root, list[_RuleStart]] = {}
        self._with_child: dict[_Root, dict[int, dict[str, list[_RuleStart]]]] = {}
        self.depth = 0
        for rule, start in ((one, start) for one in rules for start in one.starts):
            self.depth = max(self.depth, rule.depth)
            pattern = start.pattern
            root = pattern.op, pattern.num_inputs
            if pattern.child is None:
                self._plain.setdefault(root, []).append((rule, start))
            else:
                position, op = pattern.child
                by_position = self._with_child.setdefault(root, {})
                by_position.setdefault(position, {}).setdefault(op, []).append((rule, start))

    def at(self, graph: Graph, number: int) -> list[_RuleStart]:
        """Those whose operators at the root and below are there."""
        node = graph.nodes[number]
        inputs = node.inputs
        root = node.op, len(inputs)
        found = self._plain.get(root, [])
        by_position = self._with_child.get(root)
        if by_position is None:
            return found
        found = list(found)
        for position, by_op in by_position.items():
            ref = inputs[position]
            if ref is not None:
                found += by_op.get(graph.nodes[ref.node].op, ())
        return found


class MatchIndex:
    """All matches in a graph. It never changes.

    Attributes:
      graph: the graph.
      by_rule: matches of each rule, by location.
    """

    __slots__ = ("_matches", "_of", "_present", "_rules", "_starts", "by_rule", "graph")

    def __init__(
        self, graph: Graph, rules: tuple[CompiledRule, ...], starts: Starts | None = None
    ) -> None:
        """Searches the whole graph.

        Args:
          graph: the graph.
          rules: compiled, numbered in this order.
          starts: of these rules, if at hand.
        """
        self.graph = graph
        self._rules = rules
        self._starts = starts or Starts(rules)
        self._matches: tuple[Match, ...] | None = None
        found = self._search(dict.fromkeys(graph.nodes, 0))
        self._of = [_sorted(graph, found.get(number, ())) for number in range(len(rules))]
        self._present = tuple(found)
        self.by_rule: Sequence[tuple[Match, ...]] = [one.valid for one in self._of]

    @property
    def matches(self) -> tuple[Match, ...]:
        """All matches, by rule and location."""
        if self._matches is None:
            self._matches = tuple(itertools.chain.from_iterable(self.by_rule))
        return self._matches

    def after(self, graph: Graph, change: Change) -> MatchIndex:
        """The matches in a graph that was made of this one.

        Args:
          graph: the other graph.
          change: what `Edit.finish` told of it.
        """
        other = MatchIndex.__new__(MatchIndex)
        other.graph, other._rules, other._starts = graph, self._rules, self._starts
        other._matches = None
        changed = {*change.added, *change.rewired, *_perhaps_unused(self.graph, graph, change)}
        near = _near(graph, changed, self._starts.depth)
        found = other._search(near)
        away = _by_distance({**near, **dict.fromkeys(change.removed, 0)}, self._starts.depth)
        of, by_rule = list(self._of), list(self.by_rule)
        for number in {*self._present, *found}:
            rule = self._rules[number]
            of[number] = _updated(graph, of[number], found.get(number, ()), away[rule.depth])
            by_rule[number] = of[number].valid
        other._of, other.by_rule = of, by_rule
        other._present = tuple(number for number in {*self._present, *found} if of[number].found)
        return other

    def _search(self, near: Mapping[int, int]) -> dict[int, list[Match]]:
        """Matches, by rule, that replace one of these nodes.

        Args:
          near: for each node, the number of edges to one that changed.
        """
        # Different orders find the same where a node has the same input twice: the first one stays.
        found: dict[int, dict[object, Match]] = {}
        opset = getattr(self.graph.header, "opset", 0)
        begun = _by_distance(near, self._starts.depth)
        for number, edges in near.items():
            for rule, start in self._starts.at(self.graph, number):
                if rule.depth < edges:
                    continue
                for match in rule.matches_from(self.graph, start, number, begun[rule.depth], opset):
                    same = found.setdefault(rule.number, {})
                    key = match.replaced, match.refs, match.values
                    known = same.setdefault(key, match)
                    if match.location < known.location:
                        same[key] = match
        return {number: list(same.values()) for number, same in found.items()}


def _near(graph: Graph, changed: Iterable[int], depth: int) -> dict[int, int]:
    """Nodes that depend on changed ones, and the number of edges between them, up to a depth."""
    near = dict.fromkeys(changed, 0)
    last = list(near)
    for edges in range(1, depth + 1):
        last = [user for number in last for user in graph.users(number) if user not in near]
        near.update(dict.fromkeys(last, edges))
    return near


def _by_distance(near: Mapping[int, int], depth: int) -> list[set[int]]:
    """For each number of edges up to `depth`, the nodes that are no farther away."""
    found: list[set[int]] = [set() for _ in range(depth + 1)]
    for number, edges in near.items():
        found[edges].add(number)
    for edges in range(1, depth + 1):
        found[edges] |= found[edges - 1]
    return found


def _perhaps_unused(before: Graph, after: Graph, change: Change) -> Iterator[int]:
    """Nodes of several outputs of which others than before may be used."""
    used = [
        *(
            ref
            for number in (*change.rewired, *change.removed)
            for ref in before.nodes[number].inputs
        ),
        *(ref for number in (*change.rewired, *change.added) for ref in after.nodes[number].inputs),
        *(before.outputs + after.outputs if before.outputs != after.outputs else ()),
    ]
    for ref in used:
        node = None if ref is None else after.nodes.get(ref.node)
        if ref is not None and node is not None and len(node.types) > 1:
            yield ref.node


def _updated(graph: Graph, before: _Of, new: Collection[Match], away: set[int]) -> _Of:
    """A rule's matches without those that replace certain nodes, and with new ones."""
    if not new and before.replaced.isdisjoint(away):
        return _sorted(graph, before.found) if before.need_check else before
    kept: Collection[Match] = before.found
    if kept:
        count = len(before.found[0].replaced)
        kept = [match for match in kept if away.isdisjoint(match.location[:count])]
    return _sorted(graph, [*kept, *new])


def _sorted(graph: Graph, matches: Collection[Match]) -> _Of:
    if not matches:
        return _NONE
    found = tuple(sorted(matches, key=_location))
    count = len(found[0].replaced)
    replaced = frozenset(itertools.chain.from_iterable([match.location[:count] for match in found]))
    if not any(match.needs_check for match in found):
        return _Of(found, found, replaced)
    valid = tuple(match for match in found if not match.needs_check or is_acyclic(graph, match))
    return _Of(found, valid, replaced, need_check=True)
