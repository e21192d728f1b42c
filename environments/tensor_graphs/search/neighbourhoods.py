"""Where two graphs differ, and which of a graph's nodes and matches look alike."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable
from typing import Any

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import CONSTANT, INPUT, Change, Node, TensorType

_SMALL = 16
_NOTHING = -7
_MANY = 3

Key = tuple[Any, ...]
"""What matches have in common that look alike: the rule, then a hash for each of their nodes."""


def changed(
    before: Graph, after: Graph, changes: Iterable[Change | None]
) -> tuple[set[int], set[int]]:
    """Return what steps changed in a graph.

    Args:
      before: the graph before the steps.
      after: the graph after them.
      changes: what each of the steps changed.

    Returns:
      The nodes of `after` that are new or have other inputs than in `before`, and the nodes of
      `before` that are gone.
    """
    touched: set[int] = set()
    removed: set[int] = set()
    for change in changes:
        assert change is not None
        touched.update(change.added, change.rewired)
        removed.update(change.removed)
    # Nodes that only became constant count as rewired, but are the same.
    new = {n for n in touched & after.nodes.keys() if before.nodes.get(n) is not after.nodes[n]}
    return new, removed & before.nodes.keys()


def around(graph: Graph, numbers: Collection[int]) -> set[int]:
    """Return the given nodes and the nodes around them.

    These are the nodes that they use, the nodes that use them, and all other users of what they
    use: changing one user of a tensor may pay only if the other users change too.

    Args:
      graph: the graph.
      numbers: nodes; those that the graph does not have are returned but have no surroundings.
    """
    region = set(numbers)
    for number in numbers:
        if number in graph.nodes:
            used = [source for source in graph.nodes[number].used if not graph.is_constant(source)]
            region.update(used, graph.users(number))
            for source in used:
                region.update(graph.users(source))
    return region


def nodes_of(match: Any) -> Collection[int]:
    """Return the nodes that the rule of a match replaces."""
    return getattr(match, "nodes", None) or match.location


def signature_of(signatures: NodeSignatures, match: Any) -> Key:
    """Return a key that is equal for matches that are expected to change the cost alike.

    Args:
      signatures: those of the graph that the match belongs to.
      match: the match.
    """
    return (match.rule, *(signatures.signature(number) for number in nodes_of(match)))


def fingerprint(graph: Graph, new: Collection[int], gone: Collection[int]) -> int:
    """Hash a graph by what distinguishes it from the graph that it was made from.

    Fingerprints of graphs with the same origin can be compared. They are quicker to compute than
    hashes of whole graphs.

    Args:
      graph: the graph to hash.
      new: its nodes that are not in the origin, or have other inputs there.
      gone: nodes of the origin that it does not have.
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

    Args:
      graph: the graph.
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

        Args:
          number: the node.
          radius: length in edges of the paths that are looked at.
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
    size = 1
    for length in kind.shape:
        size *= length if isinstance(length, int) else _SMALL
    return size < _SMALL


@functools.lru_cache(maxsize=1 << 14)
def _type_colour(kind: TensorType | None) -> int:
    # A string's own hash differs from process to process.
    if kind is None:
        return 0
    return int.from_bytes(repr(kind).encode(), "little") % ((1 << 61) - 1)
