"""What steps changed in a graph, and which of its nodes and matches look alike."""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Collection
from typing import Any

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import CONSTANT, INPUT, Node, TensorType
from environments.tensor_graphs.rewriting.matching import Match
from environments.tensor_graphs.search.results import Visited

_SMALL = 16
_NOTHING = -7
_MANY = 3

Key = tuple[Any, ...]
"""What matches have in common that look alike: the rule, then a hash for each of their nodes."""


def rules_that_lost_matches(visited: Visited) -> dict[str, Visited]:
    """Return rules with fewer matches than earlier on the trail, and where they last had most."""
    peaks: dict[str, tuple[int, Visited]] = {}
    counts: collections.Counter[str] = collections.Counter()
    for earlier in visited.trail:
        counts = collections.Counter(match.rule for match in earlier.state.matches)
        for rule, count in counts.items():
            if rule not in peaks or count >= peaks[rule][0]:
                peaks[rule] = count, earlier
    return {rule: peak for rule, (count, peak) in peaks.items() if count > counts[rule]}


def changed_since(origin: Visited, here: Visited) -> tuple[set[int], set[int]]:
    """Return the nodes that are new or have other inputs, and the nodes of the origin gone since.

    The origin is a state of the trail to `here`.
    """
    before, after = origin.state.graph.nodes, here.state.graph.nodes
    touched: set[int] = set()
    removed: set[int] = set()
    for visited in here.since(origin):
        change = visited.state.change
        assert change is not None
        touched.update(change.added, change.rewired)
        removed.update(change.removed)
    # Nodes that only became constant count as rewired, but are the same.
    new = {n for n in touched & after.keys() if before.get(n) is not after[n]}
    return new, removed & before.keys()


def region_of(origin: Visited, here: Visited) -> set[int]:
    """Return what the steps from `origin` to `here` have changed, and the nodes around it.

    These are the nodes that the changed ones use, the nodes that use them, and all other users of
    what they use: changing one user of a tensor may pay only if the other users change too.
    """
    graph = here.state.graph
    region, _ = changed_since(origin, here)
    for number in tuple(region):
        used = [source for source in graph.nodes[number].used if not graph.is_constant(source)]
        region.update(used, graph.users(number), *map(graph.users, used))
    return region


def signature_of(signatures: NodeSignatures, match: Match) -> Key:
    """Return a key that is equal for matches that are expected to change the cost alike."""
    return (match.rule, *map(signatures.signature, match.nodes))


def fingerprint(graph: Graph, new: Collection[int], gone: Collection[int]) -> int:
    """Hash a graph by what distinguishes it from the graph that it was made from.

    Fingerprints of graphs with the same origin can be compared. They are quicker to compute than
    hashes of whole graphs. `new` and `gone` are the result of `changed_since`.
    """
    names: dict[int, int] = {}

    def of(number: int) -> int:
        if number not in new:
            return number
        if number not in names:
            node = graph.nodes[number]
            inputs = [_NOTHING if ref is None else hash((of(ref.node), ref.output))
                      for ref in node.inputs]  # fmt: skip
            names[number] = hash((node.label, *inputs))
        return names[number]

    outputs = [hash((of(ref.node), ref.output)) for ref in graph.outputs]
    return hash((frozenset(map(of, new)), frozenset(gone), *outputs))


class NodeSignatures:
    """Hashes of a graph's nodes that are equal for nodes that look alike.

    The names of inputs and the values of large constants are left out, so that corresponding nodes
    of a model's layers look alike. Each hash is computed when it is first asked for.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._returned = {ref.node for ref in graph.outputs}
        self._signatures: dict[int, int] = {}
        self._colours: dict[tuple[int, int], int] = {}

    def signature(self, number: int) -> int:
        """Hash what a rule's saving mostly depends on where it replaces this node.

        That is the operator, the types, which inputs are constant, how many nodes use it, and
        whether it is an output of the graph.
        """
        signature = self._signatures.get(number)
        if signature is None:
            graph, node = self._graph, self._graph.nodes[number]
            above = [
                _NOTHING
                if ref is None
                else hash((_type_colour(graph.type_of(ref)), graph.is_constant(ref.node)))
                for ref in node.inputs
            ]
            num_users = min(len(graph.users(number)), _MANY)
            signature = hash((_colour(node), number in self._returned, num_users, *above))
            self._signatures[number] = signature
        return signature

    def colour(self, number: int, radius: int) -> int:
        """Hash the neighbourhood of a node: Weisfeiler and Leman's colour refinement.

        `radius` is the length in edges of the paths that are looked at.
        """
        colour = self._colours.get((number, radius))
        if colour is None:
            colour = self._colours[number, radius] = self._refined(number, radius)
        return colour

    def _refined(self, number: int, radius: int) -> int:
        graph, node = self._graph, self._graph.nodes[number]
        if not radius:
            is_returned = number in self._returned
            return hash((_colour(node), graph.is_constant(number), is_returned))
        above = [
            _NOTHING if ref is None else hash((self.colour(ref.node, radius - 1), ref.output))
            for ref in node.inputs
        ]
        # Distant nodes may share a constant by accident: its other users do not count.
        users = () if node.op == CONSTANT else graph.users(number)
        below = sorted(self.colour(user, radius - 1) for user in users)
        return hash((self.colour(number, radius - 1), *above, _NOTHING, *below))


def _colour(node: Node) -> int:
    """Hash a node without its neighbours."""
    types = [_type_colour(kind) for kind in node.types]
    if node.op == INPUT:
        return hash((2, *types))
    if node.op == CONSTANT and not _is_small(node.types[0]):
        return hash((1, *types))
    return hash((node.label, *types))


def _is_small(kind: TensorType | None) -> bool:
    if kind is None or kind.shape is None:
        return True
    return math.prod(size if isinstance(size, int) else _SMALL for size in kind.shape) < _SMALL


@functools.lru_cache(maxsize=1 << 14)
def _type_colour(kind: TensorType | None) -> int:
    # A string's own hash differs from process to process.
    if kind is None:
        return 0
    return int.from_bytes(repr(kind).encode(), "little") % ((1 << 61) - 1)
