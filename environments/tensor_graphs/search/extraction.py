"""The cheapest graph in a graph of classes, as an integer program.

A variable for each operation says whether it is computed. Each output of the model needs an
operation that gives its class, and each operation that is computed needs one for each of its
inputs. An operation is paid once, however many use it: that is what extraction as a tree gets
wrong. That nothing may be computed with the help of itself is added where a solution breaks it: of
classes that only support each other one must be supported from outside (a loop formula).
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from scipy import optimize, sparse

from environments.tensor_graphs.nodes import Ref


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation.

    Attributes:
      gives: classes of its outputs.
      needs: classes of its inputs, without those that cost nothing.
      cost_ms: of it.
    """

    gives: tuple[Ref, ...]
    needs: tuple[Ref, ...]
    cost_ms: float


@dataclasses.dataclass(frozen=True)
class Extraction:
    """What extraction came to.

    Attributes:
      cost_ms: of the cheapest graph that was found; inf if none was.
      bound_ms: no graph costs less.
      chosen: positions of the operations in that graph.
    """

    cost_ms: float
    bound_ms: float
    chosen: tuple[int, ...]


def extract(
    operations: Sequence[Operation], outputs: Collection[Ref], deadline_s: float
) -> Extraction:
    """Finds it.

    Args:
      operations: all that there are.
      outputs: classes that the model returns, without those that cost nothing.
      deadline_s: time.monotonic() at which to end with what is known by then.
    """
    if not outputs:
        return Extraction(0.0, 0.0, ())
    given: dict[Ref, list[int]] = {}
    for position, one in enumerate(operations):
        # An operation that gives what it needs computes nothing new.
        if not set(one.gives) & set(one.needs):
            for name in one.gives:
                given.setdefault(name, []).append(position)
    rows: list[Mapping[int, float]] = [dict.fromkeys(given[name], 1.0) for name in set(outputs)]
    lower = [1.0] * len(rows)
    for position, one in enumerate(operations):
        for name in set(one.needs):
            rows.append({**dict.fromkeys(given.get(name, ()), 1.0), position: -1.0})
            lower.append(0.0)
    costs = np.array([one.cost_ms for one in operations])
    bound_ms = 0.0
    while True:
        left_s = deadline_s - time.monotonic()
        solution = _solve(costs, rows, lower, max(left_s, 0.1))
        if solution.x is None:
            return Extraction(math.inf, bound_ms, ())
        bound_ms = max(bound_ms, float(solution.mip_dual_bound))
        chosen = set(np.flatnonzero(solution.x > 0.5).tolist())
        founded, used = _founded(operations, chosen)
        if set(outputs) <= founded:
            return Extraction(float(costs[sorted(used)].sum()), bound_ms, tuple(sorted(used)))
        if left_s <= 0:
            return Extraction(math.inf, bound_ms, ())
        # Some class is needed, and what would have to give it needs it in the end.
        unfounded = {name for one in chosen for name in operations[one].gives} - founded
        support = [
            position
            for name in unfounded
            for position in given[name]
            if not unfounded & set(operations[position].needs)
        ]
        rows.append(dict.fromkeys(support, 1.0))
        lower.append(1.0)


def _founded(operations: Sequence[Operation], chosen: Collection[int]) -> tuple[set[Ref], set[int]]:
    """Classes that chosen operations can compute one after another, and those operations."""
    founded: set[Ref] = set()
    used: set[int] = set()
    waiting = sorted(chosen)
    while True:
        ready = [one for one in waiting if founded.issuperset(operations[one].needs)]
        if not ready:
            return founded, used
        for one in ready:
            founded.update(operations[one].gives)
            used.add(one)
        waiting = [one for one in waiting if one not in used]


def _solve(
    costs: np.ndarray, rows: Sequence[Mapping[int, float]], lower: Sequence[float], seconds: float
) -> optimize.OptimizeResult:
    counts = [len(row) for row in rows]
    matrix = sparse.csr_matrix(
        (
            np.concatenate([np.fromiter(row.values(), float, len(row)) for row in rows]),
            np.concatenate([np.fromiter(row.keys(), int, len(row)) for row in rows]),
            np.concatenate([[0], np.cumsum(counts)]),
        ),
        shape=(len(rows), len(costs)),
    )
    return optimize.milp(
        costs,
        constraints=optimize.LinearConstraint(matrix, np.asarray(lower), np.inf),
        integrality=np.ones(len(costs)),
        bounds=optimize.Bounds(0, 1),
        options={"time_limit": seconds, "mip_rel_gap": 1e-6},
    )
