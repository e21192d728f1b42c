"""What saved something at one place of a graph, done at all places that look like it.

Models are made of layers that are alike, and of what makes one of them cheaper the others mostly
have as much. A way to a cheaper graph falls into chains: steps of which each takes apart what one
before it has made. A chain that saves something is tried wherever its first rule matches tensors of
the same types. Which nodes the steps after the first belong at there is told by walking from the
nodes of the first one, there and where the chain comes from, along the same edges as far as the two
graphs agree.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from environments.tensor_graphs.engine import State
from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.matching import Match
from environments.tensor_graphs.nodes import Ref, TensorType
from environments.tensor_graphs.search.results import Step, Visited, match_of, step_of

_MOST_PAIRS = 400


def attempts(way: Sequence[Visited], start: State) -> Iterator[Sequence[tuple[Step, State]]]:
    """Repeats what a way saved.

    Args:
      way: states of an engine, each made of the one before it.
      start: where to begin. An attempt that ends at a cheaper graph is where the next one begins.

    Yields:
      Steps, each with the state after it; at least one. They end early where the chain does not go
      on as it did before, and may save nothing.
    """
    for chain in _chains([_link_of(one) for one in way]):
        tried: set[tuple[int, ...]] = set()
        while (place := _place(chain[0], start, tried)) is not None:
            tried.add(place.location)
            attempt = list(_repeated(chain, start, place))
            # What is one node there may be several here: then not even the first step has a
            # counterpart.
            if not attempt:
                continue
            yield attempt
            _, end = attempt[-1]
            if end.cost_ms < start.cost_ms:
                start = end


@dataclasses.dataclass(frozen=True, eq=False)
class _Link:
    """A step of a chain.

    Attributes:
      before: the state that it was taken in.
      match: what was applied.
      made: new nodes, in the order in which they were made.
      saved_ms: by it alone; less than 0 where the graph became dearer.
    """

    before: State
    match: Match
    made: tuple[int, ...]
    saved_ms: float

    def goes_on_from(self, chain: Sequence[_Link]) -> bool:
        """Whether it takes apart what one of these has made."""
        return any(number in one.made for one in chain for number in self.match.nodes)


def _link_of(visited: Visited) -> _Link:
    assert visited.parent is not None and visited.step is not None
    before, after = visited.parent.state, visited.state
    assert isinstance(before, State) and isinstance(after, State)
    match, saved_ms = match_of(before, visited.step), before.cost_ms - after.cost_ms
    return _Link(before, match, _made(before.graph, after.graph), saved_ms)


def _made(before: Graph, after: Graph) -> tuple[int, ...]:
    return tuple(sorted(after.nodes.keys() - before.nodes.keys()))


def _chains(links: Sequence[_Link]) -> list[list[_Link]]:
    """Those that save something, each in the order of its steps."""
    chains: list[list[_Link]] = []
    for link in links:
        joined = [chain for chain in chains if link.goes_on_from(chain)]
        chains = [chain for chain in chains if chain not in joined]
        chains.append(sorted([*itertools.chain(*joined), link], key=links.index))
    return [chain for chain in chains if sum(link.saved_ms for link in chain) > 0]


def _place(link: _Link, state: State, tried: Collection[tuple[int, ...]]) -> Match | None:
    """A match that has not been tried, of the same rule, of tensors of the same types."""
    known = _types(link.before.graph, link.match), _order(link.match)
    for match in state.matches_by_rule[link.match.rule]:
        if match.location not in tried and (_types(state.graph, match), _order(match)) == known:
            return match
    return None


def _types(graph: Graph, match: Match) -> list[TensorType | None]:
    return [graph.type_of(ref) for ref in _refs(match)]


def _refs(match: Match) -> tuple[Ref, ...]:
    return *match.replaced, *match.refs


def _order(match: Match) -> tuple[int, ...]:
    """What else its location says than nodes."""
    return match.location[len(match.replaced) :]


def _repeated(chain: Sequence[_Link], state: State, place: Match) -> Iterator[tuple[Step, State]]:
    """The steps of a chain as far as they are possible, from another match of its first rule on."""
    first = chain[0]
    known = zip(_refs(first.match), _refs(place), strict=True)
    pairs = _pairs(first.before.graph, state.graph, known)
    for link in chain:
        match = _counterpart(link.match, state, pairs)
        if match is None:
            return
        after = state.apply(match)
        yield step_of(match), after
        made = _made(state.graph, after.graph)
        # Where one of them was there already, nobody knows which it is.
        if len(made) == len(link.made):
            pairs.update(zip(link.made, made, strict=True))
        state = after


def _counterpart(match: Match, state: State, pairs: Mapping[int, int]) -> Match | None:
    """The match of the same rule that replaces the nodes of which these are the counterparts."""
    roots = [pairs.get(ref.node) for ref in match.replaced]
    location = *roots, *_order(match)
    for other in state.matches_by_rule[match.rule]:
        if other.location == location:
            return other
    return None


def _pairs(before: Graph, after: Graph, known: Iterable[tuple[Ref, Ref]]) -> dict[int, int]:
    """For nodes of one graph their counterparts in the other one, as far as they can be told.

    Args:
      before: the one.
      after: the other one.
      known: outputs of nodes that are counterparts.
    """
    found: dict[int, int] = {}
    taken: set[int] = set()
    todo = collections.deque((one.node, other.node) for one, other in known)
    while todo and len(found) < _MOST_PAIRS:
        number, other = todo.popleft()
        if number in found or other in taken:
            continue
        found[number] = other
        taken.add(other)
        todo.extend(_beside(before, after, number, other))
    return found


def _beside(before: Graph, after: Graph, number: int, other: int) -> Iterator[tuple[int, int]]:
    """What two counterparts use, and what uses them, where it can be told what is whose."""
    node, other_node = before.nodes[number], after.nodes[other]
    if (node.op, node.types) != (other_node.op, other_node.types):
        return
    # Constants are shared by places that have nothing to do with each other.
    if before.is_constant(number) or after.is_constant(other):
        return
    for one, another in zip(node.inputs, other_node.inputs, strict=False):
        if one is not None and another is not None:
            yield one.node, another.node
    users, other_users = _users(before, number), _users(after, other)
    for use, numbers in users.items():
        others = other_users.get(use, [])
        if len(numbers) == len(others) == 1:
            yield numbers[0], others[0]


def _users(graph: Graph, number: int) -> dict[tuple[object, ...], list[int]]:
    """Nodes that use one, by operator, types, and the inputs that it is."""
    found: dict[tuple[object, ...], list[int]] = {}
    for user in graph.users(number):
        node = graph.nodes[user]
        places = (place for place, ref in enumerate(node.inputs) if ref and ref.node == number)
        found.setdefault((node.op, node.types, *places), []).append(user)
    return found
