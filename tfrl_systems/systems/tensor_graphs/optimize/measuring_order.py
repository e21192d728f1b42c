"""Which operators are measured first, since there is seldom time for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from environments.tensor_graphs.graph.graph import Graph


def measuring_order(start: Any, cheaper: Sequence[Any]) -> list[tuple[Graph, int]]:
    """Return nodes, each with its graph, in the order in which they are worth measuring.

    `start` is the state of the model, with costs by formula. `cheaper` states are so by formula, or
    a policy led to them; what differs in them comes first.
    """
    return [pair for state in cheaper for pair in _changed(start, state)] + _near(start)


def _changed(start: Any, cheaper: Any) -> list[tuple[Graph, int]]:
    """Return the nodes that differ between two states, each with its graph; the dearest first."""
    before_ms, after_ms = start.node_costs_ms, cheaper.node_costs_ms
    nodes = [
        (cost_ms, start.graph, number)
        for number, cost_ms in before_ms.items()
        if number not in after_ms
    ]
    nodes += [
        (cost_ms, cheaper.graph, number)
        for number, cost_ms in after_ms.items()
        if before_ms.get(number) != cost_ms
    ]
    nodes.sort(key=lambda node: -node[0])
    return [(graph, number) for _, graph, number in nodes]


def _near(start: Any) -> list[tuple[Graph, int]]:
    """Return all nodes of a state: those that rules may change first, the dearest of them first."""
    graph, costs_ms = start.graph, start.node_costs_ms
    near = {number for match in start.matches for number in match.nodes}
    near |= {user for number in near for user in graph.users(number)}
    order = sorted(costs_ms, key=lambda number: (number not in near, -costs_ms[number], number))
    return [(graph, number) for number in order]
