"""How cheap a small graph can become at best, by the same rules and the same costs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.nodes import CONSTANT
from environments.tensor_graphs.search.extraction import Operation, extract
from environments.tensor_graphs.search.saturation import Saturation
from environments.tensor_graphs.substitutions import Substitution


@dataclasses.dataclass(frozen=True)
class Bound:
    """What is known about the best graph.

    Attributes:
      cost_ms: of the best graph found.
      bound_ms: no graph that the rules can reach costs less, where `is_proved`.
      is_proved: whether all that rules can make was looked at.
      num_operations: that the rules made, with those that were there.
      seconds: wall time.
    """

    cost_ms: float
    bound_ms: float
    is_proved: bool
    num_operations: int
    seconds: float

    def gap(self, cost_ms: float) -> float:
        """By which part of the bound a cost lies above it."""
        return max(0.0, cost_ms / self.bound_ms - 1) if self.bound_ms > 0 else 0.0


def bound(
    graph: Graph,
    rules: Sequence[Substitution],
    objective: Any,
    *,
    max_operations: int = 4000,
    seconds: float = 120.0,
) -> Bound:
    """Saturates a graph with rules, and takes the cheapest graph out of it.

    Args:
      graph: of up to some 30 operators: what rules can make of more grows without end.
      rules: as `engine.Engine` takes them.
      objective: as `engine.Engine` takes it.
      max_operations: that the rules may make before it is given up.
      seconds: of wall time, half of them for the saturation.

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
    found = extract(operations, outputs, began_s + seconds)
    return Bound(
        found.cost_ms,
        found.bound_ms,
        saturation.is_complete,
        sum(node.op != CONSTANT for node in view.nodes.values()),
        time.monotonic() - began_s,
    )
