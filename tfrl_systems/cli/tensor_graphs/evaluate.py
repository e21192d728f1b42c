"""`tfrl evaluate tensor_graphs`, once the command line is read."""

from __future__ import annotations

import argparse
import math
import pathlib
from typing import TYPE_CHECKING, Any

from environments.errors import UserError
from environments.tensor_graphs.search import METHODS, Budget, Result
from environments.tensor_graphs.search.exact import Bound, bound
from tfrl_systems.cli.console import Progress, format_table, percent, say, show, show_json
from tfrl_systems.cli.tensor_graphs.problem import Problem, model_of, num_operators

if TYPE_CHECKING:
    from tfrl_systems.cli.tensor_graphs.policy import GraphPolicy

_MOST_BOUNDED = 30
_BOUND_S = 120.0


def run(options: argparse.Namespace) -> int:
    """Evaluates as the command line says."""
    policies = {name: _policy_of(name, options.seed) for name in options.policies}
    evaluated = []
    with Progress() as progress:
        advance = progress.task("searching", len(options.models) * len(options.policies))
        for name in options.models:
            problem = Problem.of(name, model_of(options, name), options)
            results = {}
            for policy, learned in policies.items():
                results[policy] = _search(options, problem, policy, learned)
                advance(1)
            evaluated.append((problem, results, _bound(options, problem)))
    if options.json:
        show_json({"models": [_to_json(*one) for one in evaluated]})
        return 0
    for problem, results, bounded in evaluated:
        show(_to_text(problem, results, bounded))
    return 0


def _policy_of(name: str, seed: int) -> GraphPolicy | None:
    """A learned policy by its directory; None for a search."""
    if name in METHODS:
        return None
    if not pathlib.Path(name).is_dir():
        raise UserError(
            f"policy: expected one of {', '.join(METHODS)}, or the directory of a learned policy; "
            f"found {name!r}"
        )
    from tfrl_systems.cli.tensor_graphs.policy import GraphPolicy

    return GraphPolicy.load(name, seed)


def _search(
    options: argparse.Namespace, problem: Problem, name: str, learned: GraphPolicy | None
) -> Result:
    most = math.inf if options.expansions is None else options.expansions
    budget = Budget(options.seconds, most)
    if learned is not None:
        return problem.search("policy", budget, learned, options.rollouts)
    settings = {"seed": options.seed} if name == "random" else {}
    return problem.search(name, budget, **settings)


def _bound(options: argparse.Namespace, problem: Problem) -> Bound | None:
    if not options.bound:
        return None
    if num_operators(problem.graph) > _MOST_BOUNDED:
        say(f"{problem.name}: no bound: it has more than {_MOST_BOUNDED} operators")
        return None
    return bound(problem.graph, problem.rules, problem.objective, seconds=_BOUND_S)


def _to_json(problem: Problem, results: dict[str, Result], bounded: Bound | None) -> dict[str, Any]:
    return {
        "model": problem.name,
        "estimated_ms_before": problem.start.cost_ms,
        "policies": [
            {
                "policy": policy,
                "estimated_ms_after": one.best.cost_ms,
                "steps": len(one.path),
                "seconds": one.seconds,
                "expansions": one.expansions,
                "expansions_of_best": one.expansions_of_best,
                "stopped": one.stopped,
                "substitutions": [
                    {"xfer": step.xfer, "location": list(step.location)} for step in one.path
                ],
                "gap": bounded and bounded.gap(one.best.cost_ms),
            }
            for policy, one in results.items()
        ],
        "bound": bounded
        and {
            "estimated_ms": bounded.bound_ms,
            "is_proved": bounded.is_proved,
            "operations": bounded.num_operations,
            "seconds": bounded.seconds,
        },
    }


def _to_text(problem: Problem, results: dict[str, Result], bounded: Bound | None) -> str:
    header = [problem.name, "estimate ms", "change", "steps", "expansions", "of best", "seconds"]
    rows = [["(the model)", f"{problem.start.cost_ms:.4f}", "", "", "", "", ""]]
    rows += [
        [
            policy,
            f"{one.best.cost_ms:.4f}",
            percent(one.best.cost_ms, problem.start.cost_ms),
            f"{len(one.path)}",
            f"{one.expansions:,}",
            f"{one.expansions_of_best:,}",
            f"{one.seconds:.1f}",
        ]
        for policy, one in results.items()
    ]
    if bounded is not None:
        name = "bound" if bounded.is_proved else "best known"
        change = percent(bounded.bound_ms, problem.start.cost_ms)
        rows.append([name, f"{bounded.bound_ms:.4f}", change, "", "", "", f"{bounded.seconds:.1f}"])
    return format_table(header, rows)
