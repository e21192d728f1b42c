"""Evaluation of policies and searches: how cheap they make the graphs of models."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from environments.errors import UserError
from environments.files import is_directory
from environments.tensor_graphs.bound.exact import Bound, bound
from environments.tensor_graphs.search import METHODS, Budget, Result
from tfrl_systems.reporting import Reporter, format_table, percent
from tfrl_systems.settings import option
from tfrl_systems.systems.tensor_graphs import shipped
from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy
from tfrl_systems.systems.tensor_graphs.problem import (
    GraphProblem,
    Problem,
    find_model,
    num_operators,
)

_BOUND_S = 120.0
_MOST_BOUNDED_OPERATORS = 30
_LED = "regions:"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Searching:
    """How long to search.

    Attributes:
      seconds: the most time that a search may take.
      expansions: the most rules that a search may apply; if this ends the search, its result is the
        same on every run.
      rollouts: episodes that a learned policy plays; in the first it takes its likeliest actions,
        in the others it draws them; most begin at the cheapest graph so far or on the trail to it,
        and hopeless ones are given up; every eighth is replaced by probing single steps.
    """

    seconds: float = option(60.0, metavar="N", positive=True)
    expansions: int | None = option(None, metavar="N", minimum=0)
    rollouts: int = option(64, metavar="K", minimum=1)

    @property
    def budget(self) -> Budget:
        """The limits of a search."""
        return Budget(self.seconds, math.inf if self.expansions is None else self.expansions)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation(Searching, Problem):
    """What to compare policies on.

    Attributes:
      bound: also say how cheap the graph can become at best (for up to 30 operators).
    """

    bound: bool = False


def evaluate(
    policies: Sequence[str], request: Evaluation, seed: int, reporter: Reporter
) -> dict[str, Any]:
    """Evaluate policies, and return what `tfrl evaluate tensor_graphs --json` prints."""
    learned = {name: _policy_of(name, seed) for name in policies}
    advance = reporter.task("searching", len(request.models) * len(policies))
    evaluated = []
    for name in request.models:
        problem = GraphProblem.of(name, find_model(name, seed), request)
        results = {}
        for policy in policies:
            results[policy] = _search(request, problem, policy, learned[policy], seed)
            advance(1)
        bounded = bound_of(problem, _BOUND_S, reporter) if request.bound else None
        evaluated.append(_to_json(problem, results, bounded))
    return {"models": evaluated}


def bound_of(problem: GraphProblem, seconds: float, reporter: Reporter) -> Bound | None:
    """Search for the least cost that the rules allow, for some seconds; None for large graphs."""
    if num_operators(problem.graph) > _MOST_BOUNDED_OPERATORS:
        reporter.say(
            f"{problem.name}: no bound: it has more than {_MOST_BOUNDED_OPERATORS} operators"
        )
        return None
    return bound(problem.graph, problem.rules, problem.objective, seconds=seconds)


def _policy_of(name: str, seed: int) -> GraphPolicy | None:
    """Load the learned policy of DIR or regions:DIR; return None for the name of a search."""
    if name in METHODS:
        return None
    directory = name.removeprefix(_LED)
    if directory == shipped.NAME:
        return GraphPolicy.load(shipped.DIRECTORY, seed)
    if not is_directory(directory):
        raise UserError(
            f"policy: expected one of {', '.join((*METHODS, shipped.NAME))}, or the directory DIR "
            f"of a learned policy, or {_LED}DIR; found {name!r}"
        )
    return GraphPolicy.load(directory, seed)


def _search(
    request: Evaluation, problem: GraphProblem, name: str, learned: GraphPolicy | None, seed: int
) -> Result:
    if learned is not None:
        method = "regions" if name.startswith(_LED) else "policy"
        return problem.search(method, request.budget, learned, request.rollouts)
    settings: dict[str, Any] = {"seed": seed} if name == "random" else {}
    return problem.search(name, request.budget, **settings)


def _to_json(
    problem: GraphProblem, results: Mapping[str, Result], bounded: Bound | None
) -> dict[str, Any]:
    return {
        "model": problem.name,
        "estimated_ms_before": problem.start.cost_ms,
        "policies": [
            {
                "policy": policy,
                "estimated_ms_after": result.best.cost_ms,
                "steps": len(result.path),
                "seconds": result.seconds,
                "expansions": result.expansions,
                "expansions_of_best": result.expansions_of_best,
                "stopped": result.stopped,
                "substitutions": [
                    {"xfer": step.rule, "location": list(step.location)} for step in result.path
                ],
                "gap": bounded and bounded.gap(result.best.cost_ms),
            }
            for policy, result in results.items()
        ],
        "bound": bounded
        and {
            "estimated_ms": bounded.bound_ms,
            "is_proved": bounded.is_proved,
            "operations": bounded.num_operations,
            "seconds": bounded.seconds,
        },
    }


def model_table(model: Mapping[str, Any]) -> str:
    """Format for people what each policy makes of a model."""
    header = [model["model"], "estimate ms", "change", "steps", "expansions", "of best", "seconds"]
    before_ms = model["estimated_ms_before"]
    rows = [["(the model)", f"{before_ms:.4f}", "", "", "", "", ""]]
    rows += [
        [
            policy["policy"],
            f"{policy['estimated_ms_after']:.4f}",
            percent(policy["estimated_ms_after"], before_ms),
            f"{policy['steps']}",
            f"{policy['expansions']:,}",
            f"{policy['expansions_of_best']:,}",
            f"{policy['seconds']:.1f}",
        ]
        for policy in model["policies"]
    ]
    if bound := model["bound"]:
        name = "bound" if bound["is_proved"] else "best known"
        estimated_ms = bound["estimated_ms"]
        change = percent(estimated_ms, before_ms)
        rows.append([name, f"{estimated_ms:.4f}", change, "", "", "", f"{bound['seconds']:.1f}"])
    return format_table(header, rows)
