"""A lower bound on how cheap a small graph can become."""

from __future__ import annotations

from environments.tensor_graphs.bound.exact import Bound, bound
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem, num_operators

_MOST_OPERATORS = 30


def bound_of(problem: GraphProblem, seconds: float, reporter: Reporter) -> Bound | None:
    """Search for the least cost that the rules allow, for some seconds; None for large graphs."""
    if num_operators(problem.graph) > _MOST_OPERATORS:
        reporter.say(f"{problem.name}: no bound: it has more than {_MOST_OPERATORS} operators")
        return None
    return bound(problem.graph, problem.rules, problem.objective, seconds=seconds)
