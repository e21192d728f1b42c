"""The least cost that given rules can reach from a small graph."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from environments.tensor_graphs.bound.extraction import Operation, extract
from environments.tensor_graphs.bound.saturation import Saturation
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import CONSTANT
from environments.tensor_graphs.rules.language.rule import Rule


@dataclasses.dataclass(frozen=True)
class Bound:
    """The cheapest graph found, and a lower bound on its cost.

    Attributes:
      cost_ms: cost of the cheapest graph found.
      bound_ms: lower bound on the cost of every graph in the saturated classes. If `is_proved`, it
        holds for every graph that the rules can reach.
      is_proved: whether saturation finished, so that the classes contain everything that the rules
        can make.
      num_operations: number of operations in the classes: the graph's own and those that the rules
        made.
      seconds: wall time.
    """

    cost_ms: float
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
    """Saturate a graph with rules, then extract the cheapest graph.

    Args:
      graph: the graph, of up to about 30 operators. Larger ones seldom saturate.
      rules: the rules, as `engine.Engine` takes them.
      objective: the objective, as `engine.Engine` takes it.
      max_operations: saturation stops, unfinished, at more operations than this.
      seconds: wall time for saturation and extraction together; saturation gets half.

    Returns:
      The cheapest graph's cost and the bound.

    Raises:
      UserError: egglog is not installed.
    """
    began_s = time.monotonic()
    saturation = Saturation(graph, rules)
    saturation.grow(max_operations, began_s + seconds / 2)
    view = saturation.view
    universe, numbers = saturation.finish()
    operations = []
    for number, node in view.nodes.items():
        gives = tuple(name for ref, name in view.names.items() if ref.node == number)
        if all(name in view.constants for name in gives):
            continue
        needs = [ref for ref in node.inputs if ref is not None and ref not in view.constants]
        cost_ms = objective.node_cost_ms(universe, numbers[number])
        operations.append(Operation(number, gives, tuple(dict.fromkeys(needs)), cost_ms))
    outputs = {view.names[ref] for ref in graph.outputs} - view.constants
    extraction = extract(operations, outputs, began_s + seconds)
    return Bound(
        extraction.cost_ms,
        extraction.bound_ms,
        saturation.is_complete,
        sum(node.op != CONSTANT for node in view.nodes.values()),
        time.monotonic() - began_s,
    )
