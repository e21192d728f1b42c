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
from environments.tensor_graphs.rewriting.joins import Start
from environments.tensor_graphs.rewriting.matching import CompiledRule, Match, is_acyclic

_location = operator.attrgetter("location")

_Root = tuple[str, int]
"""An operator and its number of inputs."""

_RuleStart = tuple[CompiledRule, Start]


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


class Starts:
    """The starts of all rules, sorted by the operators of their patterns.

    Attributes:
      depth: depth of the deepest rule, in edges; see `CompiledRule`.
    """

    def __init__(self, rules: Collection[CompiledRule]) -> None:
        """Sort the starts by the root's operator, and by an operator below it if there is one."""
        self._plain: dict[_Root, list[_RuleStart]] = {}
        self._with_child: dict[_Root, dict[int, dict[str, list[_RuleStart]]]] = {}
        self.depth = max((rule.depth for rule in rules), default=0)
        for rule in rules:
            for start in rule.starts:
                pattern = start.pattern
                root = pattern.op, pattern.num_inputs
                if pattern.child is None:
                    self._plain.setdefault(root, []).append((rule, start))
                else:
                    position, op = pattern.child
                    by_op = self._with_child.setdefault(root, {}).setdefault(position, {})
                    by_op.setdefault(op, []).append((rule, start))

    def at(self, graph: Graph, number: int) -> list[_RuleStart]:
        """Return the starts that fit a node: in its operator, and in the one below it if given."""
        node = graph.nodes[number]
        inputs = node.inputs
        root = node.op, len(inputs)
        starts = self._plain.get(root, [])
        by_position = self._with_child.get(root)
        if by_position is None:
            return starts
        starts = list(starts)
        for position, by_op in by_position.items():
            ref = inputs[position]
            if ref is not None:
                starts += by_op.get(graph.nodes[ref.node].op, ())
        return starts


class MatchIndex:
    """All matches in a graph; immutable.

    A search looks at the costs of many graphs, and at the matches of few. So an index that `after`
    made searches its graph when it is first asked.

    Attributes:
      graph: the graph.
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
        """Return the index of a graph that was made from this one.

        Args:
          graph: the new graph.
          change: what differs between the two graphs, as `Edit.finish` returned it.
        """
        index = MatchIndex.__new__(MatchIndex)
        index.graph, index._rules, index._starts = graph, self._rules, self._starts
        index._matches, index._before = None, (self, change)
        return index

    def _update(self) -> None:
        """Find the matches, unless that was done before."""
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

        Args:
          near: these nodes, each with its distance in edges from a node that changed.
        """
        # Where a node has the same input twice, several orders of inputs find the same match. Keep
        # the one with the smallest location.
        matches: dict[int, dict[object, Match]] = {}
        opset = getattr(self.graph.header, "opset", 0)
        begun = _by_distance(near, self._starts.depth)
        for number, edges in near.items():
            for rule, start in self._starts.at(self.graph, number):
                if rule.depth < edges:
                    continue
                for match in rule.matches_from(self.graph, start, number, begun[rule.depth], opset):
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
    """Update the matches of one rule."""
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
