"""The least cost that given rules can reach from a small graph."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from environments.tensor_graphs.bound.extraction import Operation, least_cost_ms
from environments.tensor_graphs.bound.saturation import Saturation, outputs_of
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import CONSTANT
from environments.tensor_graphs.rules.language.rule import Rule


@dataclasses.dataclass(frozen=True)
class Bound:
    """A lower bound on the cost of a graph.

    Attributes:
      bound_ms: lower bound on the cost of every graph in the saturated classes. If `is_proved`, it
        holds for every graph that the rules can reach.
      is_proved: whether saturation finished, so that the classes contain everything that the rules
        can make.
      num_operations: number of operations in the classes: the graph's own and those that the rules
        made.
      seconds: wall time.
    """

    bound_ms: float
    is_proved: bool
    num_operations: int
    seconds: float

    def gap(self, cost_ms: float) -> float:
        """Return how far a cost in ms lies above the bound, as a share of the bound."""
        return max(0.0, cost_ms / self.bound_ms - 1) if self.bound_ms > 0 else 0.0


def bound(
    graph: Graph,
    rules: Sequence[Rule],
    objective: Any,
    *,
    max_operations: int = 4000,
    seconds: float = 120.0,
) -> Bound:
    """Saturate a graph with rules, then work out the least cost of a graph in its classes.

    Graphs of more than about 30 operators seldom saturate. Saturation stops, unfinished, at more
    than `max_operations`, or after half of the seconds; extraction has the rest.
    """
    began_s = time.monotonic()
    saturation = Saturation(graph, rules)
    saturation.grow(max_operations, began_s + seconds / 2)
    view = saturation.view
    universe, numbers = saturation.finish()
    operations = []
    for number, node in view.nodes.items():
        gives = frozenset(view.names[ref] for ref in outputs_of(number, node))
        if not gives <= view.constants:
            needs = frozenset(filter(None, node.inputs)) - view.constants
            cost_ms = objective.node_cost_ms(universe, numbers[number])
            operations.append(Operation(gives, needs, cost_ms))
    outputs = {view.names[ref] for ref in graph.outputs} - view.constants
    return Bound(
        least_cost_ms(operations, outputs, began_s + seconds),
        saturation.is_complete,
        sum(node.op != CONSTANT for node in view.nodes.values()),
        time.monotonic() - began_s,
    )
