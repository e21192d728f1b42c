"""All matches of rules in a graph, kept up to date as the graph changes.

A match depends only on the nodes of its rule's source and on the nodes that the variables stand
for. Therefore a change of the graph can only add or remove matches that replace a node at most a
few edges above a node that changed. The index keeps all other matches.

There is one exception. A rule that replaces several nodes at once may create a cycle, and whether
it does can depend on any part of the graph. The index checks the few matches that may create one
(`Match.needs_check`) after every change.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import Change
from environments.tensor_graphs.rewriting.matching import CompiledRule, Match, is_acyclic
from environments.tensor_graphs.rewriting.patterns import Nodes, Used, used_by
from environments.tensor_graphs.rewriting.starts import Start

_location = operator.attrgetter("location")
_rank = operator.itemgetter(0)

_Root = tuple[str, int]
"""An operator and its number of inputs."""

_Place = tuple[int, CompiledRule, Start, tuple[int, ...]]
"""A start's rank, its rule, itself, and the numbers of the nodes that are its operators."""


@dataclasses.dataclass(frozen=True, slots=True)
class _RuleMatches:
    """The matches of one rule.

    Attributes:
      places: all places where the source matches, sorted by location, including those where
        applying the rule would create a cycle.
      valid: those of `places` that create no cycle.
      replaced: numbers of all nodes that `places` replace.
      need_check: whether a change elsewhere in the graph can make one of `places` valid or invalid.
    """

    places: tuple[Match, ...] = ()
    valid: tuple[Match, ...] = ()
    replaced: frozenset[int] = frozenset()
    need_check: bool = False


_NONE = _RuleMatches()


class _Branch:
    """Starts whose patterns have the same operators so far, counted as `Pattern.operators` does.

    Attributes:
      starts: those that have no more operators, each with its rank among all starts.
      below: for the place of the next operator, the branch for each operator there.
    """

    __slots__ = ("below", "starts")

    def __init__(self) -> None:
        self.starts: list[tuple[int, CompiledRule, Start]] = []
        self.below: dict[tuple[int, int], dict[Used, _Branch]] = {}

    def add(self, rank: int, rule: CompiledRule, start: Start) -> None:
        """Add a start, behind the operators of its pattern."""
        branch = self
        for register, index, used in start.pattern.operators:
            by_used = branch.below.setdefault((register, index), {})
            branch = by_used.setdefault(used, _Branch())
        branch.starts.append((rank, rule, start))

    def find(self, nodes: Nodes, numbers: tuple[int, ...]) -> Iterator[_Place]:
        """Yield the starts whose operators are there, below operators with these numbers."""
        for rank, rule, start in self.starts:
            yield rank, rule, start, numbers
        for (register, index), by_used in self.below.items():
            ref = nodes[numbers[register]].inputs[index]
            if ref is not None and (branch := by_used.get(used_by(nodes, ref))) is not None:
                yield from branch.find(nodes, (*numbers, ref.node))


class Starts:
    """The starts of all rules, as a tree by the operators of their patterns.

    Patterns have many operators in common, and most do not fit a node. So all patterns are compared
    with it at once, operator by operator.

    Attributes:
      depth: depth of the deepest rule, in edges; see `CompiledRule`.
    """

    def __init__(self, rules: Collection[CompiledRule]) -> None:
        """Make the tree."""
        self.depth = max((rule.depth for rule in rules), default=0)
        self._roots: dict[_Root, _Branch] = {}
        ranks = itertools.count()
        for rule in rules:
            for start in rule.starts:
                root = start.pattern.op, start.pattern.num_inputs
                self._roots.setdefault(root, _Branch()).add(next(ranks), rule, start)

    def at(self, graph: Graph, number: int) -> list[_Place]:
        """Return the starts whose operators are at a node and below it, in the order of the rules.

        None begins at a constant node.
        """
        node = graph.nodes[number]
        branch = self._roots.get((node.op, len(node.inputs)))
        if branch is None or graph.is_constant(number):
            return []
        return sorted(branch.find(graph.nodes, (number,)), key=_rank)


class MatchIndex:
    """All matches in a graph; immutable.

    A search looks at the costs of many graphs, and at the matches of few. So an index that `after`
    made searches its graph when it is first asked.
    """

    __slots__ = ("_before", "_by_rule", "_matches", "_of", "_present", "_rules", "_starts", "graph")

    def __init__(
        self, graph: Graph, rules: tuple[CompiledRule, ...], starts: Starts | None = None
    ) -> None:
        """Search the whole graph."""
        self.graph = graph
        self._rules = rules
        self._starts = starts or Starts(rules)
        self._matches: tuple[Match, ...] | None = None
        # The index that this one was made from, and the change since; None once all is found.
        self._before: tuple[MatchIndex, Change] | None = None
        matches = self._search(dict.fromkeys(graph.nodes, 0))
        self._of = [_sorted(graph, matches.get(number, ())) for number in range(len(rules))]
        self._present = tuple(matches)
        self._by_rule: Sequence[tuple[Match, ...]] = [matches.valid for matches in self._of]

    @property
    def by_rule(self) -> Sequence[tuple[Match, ...]]:
        """The matches of each rule, sorted by location."""
        self._update()
        return self._by_rule

    @property
    def matches(self) -> tuple[Match, ...]:
        """All matches, sorted by rule and location."""
        if self._matches is None:
            self._matches = tuple(itertools.chain.from_iterable(self.by_rule))
        return self._matches

    def after(self, graph: Graph, change: Change) -> MatchIndex:
        """Return the index of a graph that was made from this one; `Edit.finish` returned both."""
        index = MatchIndex.__new__(MatchIndex)
        index.graph, index._rules, index._starts = graph, self._rules, self._starts
        index._matches, index._before = None, (self, change)
        return index

    def _update(self) -> None:
        if self._before is None:
            return
        before, change = self._before
        before._update()
        graph, depth = self.graph, self._starts.depth
        changed = {*change.added, *change.rewired, *_with_other_users(before.graph, graph, change)}
        near = _near(graph, changed, depth)
        matches = self._search(near)
        away = _by_distance({**near, **dict.fromkeys(change.removed, 0)}, depth)
        of, by_rule = list(before._of), list(before._by_rule)
        # Only rules with matches before or now are looked at: most have none.
        looked_at = {*before._present, *matches}
        for number in looked_at:
            rule = self._rules[number]
            of[number] = _updated(graph, of[number], matches.get(number, ()), away[rule.depth])
            by_rule[number] = of[number].valid
        self._of, self._by_rule = of, by_rule
        self._present = tuple(number for number in looked_at if of[number].places)
        self._before = None

    def _search(self, near: Mapping[int, int]) -> dict[int, list[Match]]:
        """Find the matches that replace one of some nodes, by the rule's number.

        These nodes come with their distances in edges from a node that changed.
        """
        # Where a node has the same input twice, several orders of inputs find the same match. Keep
        # the one with the smallest location.
        matches: dict[int, dict[object, Match]] = {}
        opset = getattr(self.graph.header, "opset", 0)
        begun = _by_distance(near, self._starts.depth)
        for number, edges in near.items():
            for _, rule, start, numbers in self._starts.at(self.graph, number):
                if rule.depth < edges:
                    continue
                begun_at = begun[rule.depth]
                for match in rule.matches_from(self.graph, start, numbers, begun_at, opset):
                    same = matches.setdefault(rule.number, {})
                    key = match.replaced, match.refs, match.values
                    twin = same.setdefault(key, match)
                    if match.location < twin.location:
                        same[key] = match
        return {number: list(same.values()) for number, same in matches.items()}


def _near(graph: Graph, changed: Iterable[int], depth: int) -> dict[int, int]:
    """Return the nodes at most `depth` edges above a changed node, with their distance in edges."""
    near = dict.fromkeys(changed, 0)
    last = list(near)
    for edges in range(1, depth + 1):
        last = [user for number in last for user in graph.users(number) if user not in near]
        near.update(dict.fromkeys(last, edges))
    return near


def _by_distance(near: Mapping[int, int], depth: int) -> list[set[int]]:
    """Return, for each distance from 0 to `depth`, the nodes that are at most that far away."""
    within: list[set[int]] = [set() for _ in range(depth + 1)]
    for number, edges in near.items():
        within[edges].add(number)
    for edges in range(1, depth + 1):
        within[edges] |= within[edges - 1]
    return within


def _with_other_users(before: Graph, after: Graph, change: Change) -> Iterator[int]:
    """Yield the nodes of several outputs whose users an edit may have changed.

    They count as changed, because a match needs a user of one of the outputs that it replaces.
    """
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


def _updated(
    graph: Graph, before: _RuleMatches, new: Collection[Match], away: set[int]
) -> _RuleMatches:
    if not new and before.replaced.isdisjoint(away):
        return _sorted(graph, before.places) if before.need_check else before
    matches: Collection[Match] = before.places
    if matches:
        count = len(before.places[0].replaced)
        matches = [match for match in matches if away.isdisjoint(match.location[:count])]
    return _sorted(graph, [*matches, *new])


def _sorted(graph: Graph, matches: Collection[Match]) -> _RuleMatches:
    if not matches:
        return _NONE
    places = tuple(sorted(matches, key=_location))
    count = len(places[0].replaced)
    replaced = frozenset(
        itertools.chain.from_iterable([match.location[:count] for match in places])
    )
    if not any(match.needs_check for match in places):
        return _RuleMatches(places, places, replaced)
    valid = tuple(match for match in places if not match.needs_check or is_acyclic(graph, match))
    return _RuleMatches(places, valid, replaced, need_check=True)
