"""Where two states differ, and which places of a graph look alike."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.nodes import CONSTANT, INPUT, Node, TensorType

_SMALL = 16
_NOTHING = -7
_MANY = 3

Key = tuple[Any, ...]
"""A rule and how the place looks."""


def changed(before: Graph, after: Graph) -> set[int]:
    """Nodes of `after` that are new, or have other inputs than in `before`."""
    known = before.nodes
    return {number for number, node in after.nodes.items() if known.get(number) is not node}


def around(graph: Graph, numbers: Collection[int]) -> set[int]:
    """These nodes, those that they use and that use them, and what else uses what they use.

    What is done to one user of a tensor may pay only if it is done to the others, too.
    """
    found = set(numbers)
    for number in numbers:
        if number in graph.nodes:
            used = [one for one in graph.nodes[number].used if not graph.is_constant(one)]
            found.update(used, graph.users(number))
            for one in used:
                found.update(graph.users(one))
    return found


def nodes_of(match: Any) -> Collection[int]:
    """The nodes that a match takes apart."""
    return getattr(match, "nodes", None) or match.location


def signature_of(looks: Looks, match: Any) -> Key:
    """What a match changes of the cost depends on this."""
    return (match.xfer, *(looks.signature(number) for number in nodes_of(match)))


def fingerprint(origin: Graph, graph: Graph) -> int:
    """Tells graphs apart that were made of one: quicker than a hash of all of it."""
    new = changed(origin, graph)
    known: dict[int, int] = {}

    def of(number: int) -> int:
        if number not in new:
            return number
        if number not in known:
            node = graph.nodes[number]
            inputs = [_NOTHING if ref is None else hash((of(ref.node), ref.output))
                      for ref in node.inputs]  # fmt: skip
            known[number] = hash((node.label, *inputs))
        return known[number]

    gone = frozenset(number for number in origin.nodes if number not in graph.nodes)
    outputs = [hash((of(ref.node), ref.output)) for ref in graph.outputs]
    return hash((frozenset(map(of, new)), gone, *outputs))


class Looks:
    """What the nodes of a graph look like; worked out where it is asked for.

    Inputs look alike whatever their names, and large constants whatever their values: the layers of
    a model are to be found alike.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._returned = {ref.node for ref in graph.outputs}
        self._signatures: dict[int, int] = {}
        self._colours: dict[tuple[int, int], int] = {}

    def signature(self, number: int) -> int:
        """What is to be known of a node to tell what a rule saves that takes it apart.

        Operator, types, what of its inputs is constant, and whether it will still be used.
        """
        found = self._signatures.get(number)
        if found is None:
            graph, node = self._graph, self._graph.nodes[number]
            above = [
                _NOTHING
                if ref is None
                else hash((_type_colour(graph.type_of(ref)), graph.is_constant(ref.node)))
                for ref in node.inputs
            ]
            num_users = min(len(graph.users(number)), _MANY)
            found = hash((_colour(node), number in self._returned, num_users, *above))
            self._signatures[number] = found
        return found

    def colour(self, number: int, radius: int) -> int:
        """Equal for nodes whose neighbourhoods look alike, as far as `radius` edges reach.

        Weisfeiler and Leman's refinement.
        """
        found = self._colours.get((number, radius))
        if found is None:
            found = self._colours[number, radius] = self._refined(number, radius)
        return found

    def _refined(self, number: int, radius: int) -> int:
        graph, node = self._graph, self._graph.nodes[number]
        if not radius:
            is_returned = number in self._returned
            return hash((_colour(node), graph.is_constant(number), is_returned))
        above = [
            _NOTHING if ref is None else hash((self.colour(ref.node, radius - 1), ref.output))
            for ref in node.inputs
        ]
        # Which constants share a value with others far away is not looked at.
        users = () if node.op == CONSTANT else graph.users(number)
        below = sorted(self.colour(user, radius - 1) for user in users)
        return hash((self.colour(number, radius - 1), *above, _NOTHING, *below))


def _colour(node: Node) -> int:
    """Of a node by itself."""
    types = [_type_colour(one) for one in node.types]
    if node.op == INPUT:
        return hash((2, *types))
    if node.op == CONSTANT and not _is_small(node.types[0]):
        return hash((1, *types))
    return hash((node.label, *types))


def _is_small(kind: TensorType | None) -> bool:
    if kind is None or kind.shape is None:
        return True
    size = 1
    for one in kind.shape:
        size *= one if isinstance(one, int) else _SMALL
    return size < _SMALL


@functools.lru_cache(maxsize=1 << 14)
def _type_colour(kind: TensorType | None) -> int:
    # A string's own hash differs from process to process.
    if kind is None:
        return 0
    return int.from_bytes(repr(kind).encode(), "little") % ((1 << 61) - 1)
