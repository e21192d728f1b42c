"""Extracts the cheapest graph from classes of equal tensors, by integer programming.

One variable for each operation says whether the operation is computed. Each output of the model
needs an operation that gives its class. Each computed operation needs one for each of its inputs.
An operation is paid once, however many others use it; extraction of trees would pay it every time.

No class may depend on itself. The program gets that constraint only where a solution breaks it: of
classes that only support each other, one needs support from outside (a loop formula).
"""

from __future__ import annotations

import dataclasses
import heapq
import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from environments.tensor_graphs.graph.nodes import Ref

if TYPE_CHECKING:
    from scipy import optimize


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation that the extracted graph may compute.

    Attributes:
      number: identifies the operation.
      gives: classes of its outputs.
      needs: classes of its inputs, except those that cost nothing.
      cost_ms: cost of computing it.
    """

    number: int
    gives: tuple[Ref, ...]
    needs: tuple[Ref, ...]
    cost_ms: float


@dataclasses.dataclass(frozen=True)
class Extraction:
    """The cheapest graph found, and a lower bound.

    Attributes:
      cost_ms: cost of the cheapest graph found.
      bound_ms: lower bound on the cost of any graph.
      chosen: numbers of the operations in the cheapest graph found.
    """

    cost_ms: float
    bound_ms: float
    chosen: tuple[int, ...]


def extract(
    operations: Sequence[Operation], outputs: Collection[Ref], deadline_s: float
) -> Extraction:
    """Extract the cheapest graph that computes all outputs.

    Args:
      operations: all operations to choose from.
      outputs: classes that the model returns, except those that cost nothing.
      deadline_s: the time.monotonic() at which to stop with the best graph known by then.

    Returns:
      The cheapest graph found, and the lower bound proved by the deadline.
    """
    if not outputs:
        return Extraction(0.0, 0.0, ())
    fallback = greedy(operations, outputs)
    operations = _useful(operations, outputs, fallback.cost_ms)
    givers: dict[Ref, list[int]] = {}
    for position, operation in enumerate(operations):
        for name in operation.gives:
            givers.setdefault(name, []).append(position)
    program = _Program(np.array([operation.cost_ms for operation in operations]))
    for name in set(outputs):
        program.require(givers[name])
    for position, operation in enumerate(operations):
        for name in set(operation.needs):
            program.require(givers.get(name, ()), position)
    bound_ms = 0.0
    while True:
        left_s = deadline_s - time.monotonic()
        solution = program.solve(max(left_s, 0.1))
        if solution.x is None:
            return Extraction(fallback.cost_ms, bound_ms, fallback.chosen)
        bound_ms = max(bound_ms, float(solution.mip_dual_bound))
        chosen = set(np.flatnonzero(solution.x > 0.5).tolist())
        founded, used = _founded(operations, chosen)
        if set(outputs) <= founded:
            numbers = tuple(sorted(operations[position].number for position in used))
            return Extraction(
                sum(operations[position].cost_ms for position in used), bound_ms, numbers
            )
        if left_s <= 0:
            return Extraction(fallback.cost_ms, bound_ms, fallback.chosen)
        for group in _circles(operations, chosen, founded):
            # An operation that needs one of these classes also needs an operation that gives one
            # of them without the others.
            support = {
                position
                for name in group
                for position in givers[name]
                if not group & set(operations[position].needs)
            }
            needing = [position for position in chosen if group & set(operations[position].needs)]
            if group & set(outputs):
                program.require(support)
            for position in needing:
                program.require(support, position)


def greedy(operations: Sequence[Operation], outputs: Collection[Ref]) -> Extraction:
    """Choose for each class that the outputs need the operation that is cheapest as a tree.

    Returns:
      The graph of the chosen operations. Its cost counts shared operations once; its bound is 0.
    """
    users: dict[Ref, list[Operation]] = {}
    missing: dict[int, int] = {}
    queue: list[tuple[float, int, Ref, Operation]] = []
    sums: dict[Ref, float] = {}
    chosen: dict[Ref, Operation] = {}

    def push(operation: Operation) -> None:
        cost_ms = operation.cost_ms + sum(sums[name] for name in set(operation.needs))
        for name in operation.gives:
            heapq.heappush(queue, (cost_ms, operation.number, name, operation))

    for operation in operations:
        missing[operation.number] = len(set(operation.needs))
        for name in set(operation.needs):
            users.setdefault(name, []).append(operation)
        if not operation.needs:
            push(operation)
    while queue:
        cost_ms, _, name, operation = heapq.heappop(queue)
        if name in chosen:
            continue
        sums[name], chosen[name] = cost_ms, operation
        for user in users.get(name, ()):
            missing[user.number] -= 1
            if not missing[user.number]:
                push(user)
    needed: dict[int, Operation] = {}
    todo = list(outputs)
    while todo:
        operation = chosen[todo.pop()]
        if operation.number not in needed:
            needed[operation.number] = operation
            todo += operation.needs
    return Extraction(
        sum(operation.cost_ms for operation in needed.values()), 0.0, tuple(sorted(needed))
    )


def _useful(
    operations: Sequence[Operation], outputs: Collection[Ref], most_ms: float
) -> list[Operation]:
    """Return the operations that a graph of cost `most_ms` or less can contain.

    The cheapest chain of operations from the inputs to an operation, and from there to an output,
    is a lower bound on the cost of any graph with that operation: the operations of a chain all
    differ.
    """
    operations = [
        operation for operation in operations if not set(operation.gives) & set(operation.needs)
    ]
    to: dict[Ref, float] = {}
    behind = dict.fromkeys(outputs, 0.0)

    def costs_ms(operation: Operation) -> tuple[float, float]:
        """Return the least cost of what an operation needs, and of what follows it."""
        before = max((to.get(name, math.inf) for name in operation.needs), default=0.0)
        return before, min(behind.get(name, math.inf) for name in operation.gives)

    changed = True
    while changed:
        changed = False
        for operation in operations:
            before, after = costs_ms(operation)
            for names, least_ms, value in (
                (operation.gives, to, before + operation.cost_ms),
                (operation.needs, behind, after + operation.cost_ms),
            ):
                for name in names:
                    if value < least_ms.get(name, math.inf):
                        least_ms[name] = value
                        changed = True
    most_ms *= 1 + 1e-9
    return [
        operation
        for operation in operations
        if sum(costs_ms(operation)) + operation.cost_ms <= most_ms
    ]


def _circles(
    operations: Sequence[Operation], chosen: Collection[int], founded: Collection[Ref]
) -> list[set[Ref]]:
    """Return groups of classes that chosen operations compute only from each other."""
    from scipy import sparse
    from scipy.sparse import csgraph

    below: dict[Ref, set[Ref]] = {}
    for position in chosen:
        for name in operations[position].gives:
            if name not in founded:
                needs = (need for need in operations[position].needs if need not in founded)
                below.setdefault(name, set()).update(needs)
    order = {name: number for number, name in enumerate(below)}
    links = [(order[name], order[need]) for name, needs in below.items() for need in needs]
    rows, columns = np.array(links, int).reshape(-1, 2).T
    adjacency = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), (len(order),) * 2)
    _, labels = csgraph.connected_components(adjacency, connection="strong")
    leaving = {labels[row] for row, column in links if labels[row] != labels[column]}
    groups: dict[int, set[Ref]] = {}
    for name, number in order.items():
        if labels[number] not in leaving:
            groups.setdefault(labels[number], set()).add(name)
    return list(groups.values())


def _founded(operations: Sequence[Operation], chosen: Collection[int]) -> tuple[set[Ref], set[int]]:
    """Return the classes that chosen operations can compute in some order, and their positions."""
    founded: set[Ref] = set()
    used: set[int] = set()
    waiting = sorted(chosen)
    while True:
        ready = [position for position in waiting if founded.issuperset(operations[position].needs)]
        if not ready:
            return founded, used
        for position in ready:
            founded.update(operations[position].gives)
            used.add(position)
        waiting = [position for position in waiting if position not in used]


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
