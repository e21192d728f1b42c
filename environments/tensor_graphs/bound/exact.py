"""The least cost that given rules can reach from a small graph.

It is that of the cheapest graph in the saturated classes of equal tensors, by integer programming:
One variable for each operation says whether the operation is computed. Each output of the model
needs an operation that gives its class. Each computed operation needs one for each of its inputs.
An operation is paid once, however many others use it; extraction of trees would pay it every time.

No class may depend on itself. The program gets that constraint only where a solution breaks it: of
classes that only support each other, one needs support from outside (a loop formula).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from environments.tensor_graphs.bound.saturation import Saturation, outputs_of
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import CONSTANT, Ref
from environments.tensor_graphs.rules.language.rule import Rule

if TYPE_CHECKING:
    from scipy import optimize


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


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation that the extracted graph may compute.

    Attributes:
      gives: classes of its outputs.
      needs: classes of its inputs, except those that cost nothing.
    """

    gives: frozenset[Ref]
    needs: frozenset[Ref]
    cost_ms: float


def least_cost_ms(
    operations: Sequence[Operation], outputs: Collection[Ref], deadline_s: float
) -> float:
    """Return a lower bound on the cost of any graph that computes all outputs.

    It is the cost of the cheapest graph, unless the time.monotonic() `deadline_s` comes before. The
    outputs are the classes that the model returns, except those that cost nothing.
    """
    if not outputs:
        return 0.0
    givers: dict[Ref, list[int]] = {}
    for position, operation in enumerate(operations):
        for name in operation.gives:
            givers.setdefault(name, []).append(position)
    program = _Program(np.array([operation.cost_ms for operation in operations]))
    for name in outputs:
        program.require(givers[name])
    for position, operation in enumerate(operations):
        for name in operation.needs:
            program.require(givers.get(name, ()), position)
    bound_ms = 0.0
    while True:
        left_s = deadline_s - time.monotonic()
        solution = program.solve(max(left_s, 0.1))
        if solution.x is None:
            return bound_ms
        bound_ms = max(bound_ms, float(solution.mip_dual_bound))
        chosen = set(np.flatnonzero(solution.x > 0.5).tolist())
        circle, founded = _circle([operations[position] for position in chosen])
        if founded.issuperset(outputs) or left_s <= 0:
            return bound_ms
        # What needs one of these classes also needs an operation that gives one from others.
        support = {
            position
            for name in circle
            for position in givers[name]
            if circle.isdisjoint(operations[position].needs)
        }
        if not circle.isdisjoint(outputs):
            program.require(support)
        for position in chosen:
            if not circle.isdisjoint(operations[position].needs):
                program.require(support, position)


def _circle(chosen: Sequence[Operation]) -> tuple[set[Ref], set[Ref]]:
    """Return the classes that chosen operations compute only from each other, and the others."""
    founded: set[Ref] = set()
    waiting = list(chosen)
    while ready := [operation for operation in waiting if founded >= operation.needs]:
        founded.update(*(operation.gives for operation in ready))
        waiting = [operation for operation in waiting if operation not in ready]
    return set().union(*(operation.gives for operation in waiting)) - founded, founded


class _Program:
    """Which operations are chosen, as an integer program; each row is a demand on them."""

    def __init__(self, costs_ms: np.ndarray) -> None:
        self._costs_ms = costs_ms
        self._rows: list[Mapping[int, float]] = []
        self._lower: list[float] = []

    def require(self, positions: Iterable[int], user: int | None = None) -> None:
        """Demand one of the operations, always or wherever their user is chosen."""
        row = dict.fromkeys(positions, 1.0)
        self._rows.append(row if user is None else {**row, user: -1.0})
        self._lower.append(1.0 if user is None else 0.0)

    def solve(self, seconds: float) -> optimize.OptimizeResult:
        """Return the cheapest choice, or what is known about it after some seconds."""
        from scipy import optimize, sparse

        rows, num_operations = self._rows, len(self._costs_ms)
        matrix = sparse.csr_matrix(
            (
                np.concatenate([np.fromiter(row.values(), float, len(row)) for row in rows]),
                np.concatenate([np.fromiter(row.keys(), int, len(row)) for row in rows]),
                np.concatenate([[0], np.cumsum([len(row) for row in rows])]),
            ),
            shape=(len(rows), num_operations),
        )
        return optimize.milp(
            self._costs_ms,
            constraints=optimize.LinearConstraint(matrix, np.asarray(self._lower), np.inf),
            integrality=np.ones(num_operations),
            bounds=optimize.Bounds(0, 1),
            options={"time_limit": seconds, "mip_rel_gap": 1e-6},
        )
