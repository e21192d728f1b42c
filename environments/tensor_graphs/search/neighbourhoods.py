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


def signature(graph: Graph, number: int) -> int:
    """What is to be known of a node to tell what a rule saves that takes it apart.

    Operator, types, what of its inputs is constant, and whether it will still be used.
    """
    node = graph.nodes[number]
    above = [
        _NOTHING
        if ref is None
        else hash((_type_colour(graph.type_of(ref)), graph.is_constant(ref.node)))
        for ref in node.inputs
    ]
    is_returned = any(ref.node == number for ref in graph.outputs)
    num_users = min(len(graph.users(number)), _MANY)
    return hash((_colour(node), is_returned, num_users, *above))


def colours(graph: Graph, radius: int = 3) -> dict[int, int]:
    """Nodes of one colour have neighbourhoods that look alike, as far as `radius` edges reach.

    Weisfeiler and Leman's refinement. Inputs look alike whatever their names, and large
    constants whatever their values: the layers of a model are to be found alike.
    """
    nodes = graph.nodes
    found = {
        number: hash((_colour(node), graph.is_constant(number))) for number, node in nodes.items()
    }
    for number in {ref.node for ref in graph.outputs}:
        found[number] = hash((found[number], 1))
    for _ in range(radius):
        last = found
        found = {}
        for number, node in nodes.items():
            above = [
                _NOTHING if ref is None else hash((last[ref.node], ref.output))
                for ref in node.inputs
            ]
            # Which constants share a value with others far away is not looked at.
            users = () if node.op == CONSTANT else graph.users(number)
            below = sorted(last[user] for user in users)
            found[number] = hash((last[number], *above, _NOTHING, *below))
    return found


def _colour(node: Node) -> int:
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
